-- The traces with the highest rewards.
select trace_id, number, bootstrap, trace_status, coalesce(ended_because, failure_kind) as because, failure, ticks,
  own_blocks, own_bytes, sampled_tokens, kept_share, reward, errors, loops, result, seconds
from trace_stats where job_id = :job order by reward desc nulls last, number limit :max_traces
