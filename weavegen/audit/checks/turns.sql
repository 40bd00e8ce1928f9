-- proves: the blocks of a tick are contiguous, except that a subagent's ticks lie between a call and its return
-- subject: blocks
select x.trace_id, 'block ' || x.index, format('a block of type %s in tick %s follows one of type %s in '
    || 'tick %s, which is neither a call, nor a return, nor the next tick', x.type, x.tick, x.last_type, x.last_tick)
from (
  select b.trace_id, b.index, b.type, b.tick, lag(b.tick) over w as last_tick,
    lag(b.type) over w as last_type, lag(b.ran) over w as last_ran,
    max(b.executed_by) over (w rows between unbounded preceding and 1 preceding) as last_executed_by
  from blocks b join traces t on t.id = b.trace_id where {scope}
  window w as (partition by b.trace_id order by b.index)
) x
left join ticks k on k.trace_id = x.trace_id and k.number = x.tick
left join ticks p on p.trace_id = x.trace_id and p.number = x.last_tick
where case
  -- The result of a delegated task stands directly after the block that delegated it.
  -- A block that an action has the model write stands between the action, or its last return, and the next return.
  when x.last_tick = x.tick then x.type = 'return' and not exists (select from steps s
    where s.id = x.last_executed_by
      and (s.result ->> 'writes' is not null or jsonb_array_length(s.result -> 'delegates') > 0))
  when x.last_tick is null then x.tick <> 0
  when x.type = 'return' then p.caller is distinct from k.number or p.finished_at is null
  -- The verification of a Harbor task is a tick of its own, which has an outcome and nothing before it.
  when x.type = 'outcome' and k.number > p.number and exists (select from steps s
    where s.trace_id = x.trace_id and s.tick = x.tick and s.kind = 'execute' and s.request ->> 'op' = 'verify')
    then p.finished_at is null
  when x.type <> 'task-reminder' and x.type <> all(:messages) or k.number <= p.number then true
  when k.caller = p.number
    then x.last_type not in ('action', 'bootstrap', 'return') or x.last_ran is not null
  else k.caller is distinct from p.caller or k.subagent <> p.subagent or p.finished_at is null
end
order by 1, x.index
