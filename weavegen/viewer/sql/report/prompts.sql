select sum(p.tokens - p.cached)::bigint as computed,
  (sum(p.cached)::double precision / nullif(sum(p.tokens) filter (where p.cached is not null), 0)) as cached_share,
  avg((p.tokens is not null and p.cached is not null)::integer)::double precision as told_share
from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
where t.job_id = :job and s.kind = 'sample'
