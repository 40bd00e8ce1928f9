-- Traces of a job; `which` is a condition on traces, `order` a column. Other tables are read for listed rows only.
-- candidates_per_block: candidates (in a tree search: nodes) sampled for each block made of one; null before the first.
-- fork_of: the trace that it goes on from; fork_at: index of the first block that is its own. retry_of: the trace that
-- it is a retry of; retried_as: those that are retries of it, in order. isolated: false where some of its code ran outside
-- a sandbox.
with listed as materialized (
  select * from traces where job_id = :job and {which} order by {order} limit :limit
)
select t.id, t.number, b.name as bootstrap, t.status,
  coalesce(t.ended_because, t.failure_kind || ': ' || t.failure) as because,
  t.ticks, t.blocks, t.bytes, t.sampled_tokens,
  round(t.candidates::numeric / nullif(t.written, 0), 2)::double precision as candidates_per_block,
  {store/trace_result} as result,
  t.fork_of, t.fork_at, t.retry_of, array(
    select r.id from traces r where r.job_id = :job and r.retry_of = t.id order by r.id
  ) as retried_as,
  not exists (select from events e where e.trace_id = t.id and e.kind = 'not isolated') as isolated
from listed t join bootstraps b on b.id = t.bootstrap_id
order by t.number
