-- The cost of a kept megabyte; docs/report.md has the formulas. null: nothing was kept, or it is unknown.
select kept as kept_megabytes, cast(:gpus as integer) as gpus_per_server, sampled_tokens / kept as sampled_tokens,
  (sampled_tokens + computed) / kept as computed_tokens, told_share, cached_share, model_seconds / kept as model_seconds,
  server_seconds / kept as server_seconds, server_seconds * cast(:gpus as integer) / kept as gpu_seconds
from (
  select nullif(kept_megabytes, 0) as kept, sampled_tokens, model_seconds, seconds * nullif(servers, 0) as server_seconds
  from yield_by_job where job_id = :job
) sums cross join (
  select sum(p.tokens - p.cached)::bigint as computed,
    (sum(p.cached)::double precision / nullif(sum(p.tokens) filter (where p.cached is not null), 0)) as cached_share,
    avg((p.tokens is not null and p.cached is not null)::integer)::double precision as told_share
  from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
  where t.job_id = :job and s.kind = 'sample'
) prompts
