-- proves: every block that the model wrote names its own candidate, sampled in the same tick for this index and
--   type; a fork's shared blocks name none
-- subject: blocks
select trace, 'block ' || index, problem from (
  select b.trace_id as trace, b.index, case
    when b.index < t.fork_at and b.candidate_id is null then null
    when b.index < t.fork_at then 'it is shared with the forked trace, but names a candidate'
    -- A conversation may begin with assistant messages from its task.
    when b.candidate_id is null and (b.block_size is not null
      or b.type = any(:written) and (b.type <> 'assistant' or b.tick > 0))
      then 'the model wrote it, but it names no candidate'
    when b.candidate_id is null then null
    when c.id is null then format('its candidate %s is missing', b.candidate_id)
    when b.block_size is null or not (b.type = any(:writable))
      then format('the model did not write it, but it names candidate %s', c.id)
    when (c.trace_id, s.tick) <> (b.trace_id, b.tick) or s.run is distinct from k.run
      then format('its candidate %s belongs to another tick', c.id)
    when c.block_index <> b.index or c.type <> b.type
      then format('its candidate %s was sampled for block %s of type %s', c.id, c.block_index, c.type)
    when p.compiles <> b.compiles then format('it says that it %s, but linting found the opposite',
      case when b.compiles then 'compiles' else 'does not compile' end)
    when count(*) over (partition by b.candidate_id) > 1
      then format('another block names candidate %s too', c.id)
  end as problem
  from blocks b join traces t on t.id = b.trace_id
  left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
  left join candidates c on c.id = b.candidate_id
  left join steps s on s.id = c.step_id
  left join penalties p on p.candidate_id = c.id
  where {scope}
) x where problem is not null order by trace, index
