-- proves: the hits of every done query are recorded: blocks that had left the window, examples, and other
--   traces' blocks only where asked for
-- subject: retrievals
with {audit/live}
select s.trace_id, 'step ' || s.id, case
    when (r.id is null) = (s.status = 'done')
      then format('this query is %s, but its hits are %s', s.status,
        case when r.id is null then 'missing' else 'recorded' end)
    when h.wrong > 0 then format('%s of its hits are blocks that it could not see', h.wrong)
    else format('it put %s texts into the prompt, but %s are recorded', jsonb_array_length(s.result), h.used)
  end
from steps s join traces t on t.id = s.trace_id
left join retrievals r on r.step_id = s.id
left join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
cross join lateral (
  select count(*) filter (where h.used) as used, count(*) filter (
    where h.block_id is not null and case
      when b.trace_id = s.trace_id then b.index >= r.before
      -- Blocks that a fork shares with the trace it is a fork of, and that trace with another, are like its own. Earlier
      -- versions found them as another trace's.
      when b.index < r.before and exists (
        with recursive shared (id, "end") as (
          select t.fork_of, t.fork_at where t.fork_of is not null
          union all
          select p.fork_of, least(p.fork_at, l."end") from shared l join traces p using (id) where p.fork_of is not null
        ) select from shared l where l.id = b.trace_id and b.index < l."end"
      ) then false
      -- Other traces' blocks must match the query's memory settings; without them there are none.
      else (b.score >= (s.request ->> 'memory')::double precision and b.compiles and b.ran is not false
        and (s.request ->> 'memory_scope' = 'all' or o.job_id = t.job_id)) is not true
    end) as wrong
  from retrieval_hits h left join blocks b on b.id = h.block_id left join traces o on o.id = b.trace_id
  where h.retrieval_id = r.id
) h
where {scope} and s.kind = 'retrieve' and s.copy_of is null and (
  (r.id is null) = (s.status = 'done') or k.id is not null
  and (h.wrong > 0 or h.used > coalesce(jsonb_array_length(s.result), 0)
    -- Where another trace restarts a tick, its blocks are deleted, and with them the hits.
    or h.used < coalesce(jsonb_array_length(s.result), 0) and s.request ->> 'memory' is null))
order by 1, s.id
