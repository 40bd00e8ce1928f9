-- proves: a block's ran and exception equal the result of the step that executed it
-- subject: blocks
select trace, 'block ' || index, problem from (
  select b.trace_id as trace, b.index, case
    when b.executed_by is null and (b.ran is not null or b.exception is not null)
      then 'it has ran or exception, but no step executed it'
    when b.executed_by is null then null
    when s.id is null then format('it was executed by step %s, which is missing', b.executed_by)
    when (s.trace_id, s.tick) <> (b.trace_id, b.tick) or s.run is distinct from k.run
      then format('it was executed by step %s, which belongs to another tick', s.id)
    when s.kind <> 'execute' or s.status <> 'done'
      then format('it was executed by step %s, a step of kind %s that is %s', s.id, s.kind, s.status)
    when case s.request ->> 'op' when 'bootstrap' then b.type <> 'bootstrap'
        when 'resume' then b.type <> 'return' when 'run' then b.type <> s.request ->> 'type' else true end
      then format('it was executed by step %s, which executes other blocks', s.id)
    when not b.compiles then format('it is not valid Python, but step %s executed it', s.id)
    when w.waits and (b.ran is not null or b.exception is not null)
      then format('it has ran or exception, but step %s only waits for other agents', s.id)
    when not w.waits and b.ran is distinct from (s.result ->> 'error' is null)
      then format('it says that it %s, but step %s says the opposite',
        case when b.ran then 'ran' when b.ran is null then 'was not executed' else 'failed' end, s.id)
    when b.exception is distinct from s.result -> 'error' ->> 'type'
      then format('its exception is %s, but that of step %s is %s', coalesce(b.exception, 'none'),
        s.id, coalesce(s.result -> 'error' ->> 'type', 'none'))
  end as problem
  from blocks b join traces t on t.id = b.trace_id
  left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
  left join steps s on s.id = b.executed_by
  cross join lateral (select s.result ->> 'waits_for' is not null or s.result ->> 'writes' is not null
    or coalesce(jsonb_array_length(s.result -> 'delegates'), 0) > 0 as waits) w
  where {scope}
) x where problem is not null order by trace, index
