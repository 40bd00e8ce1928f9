select type, sum(blocks)::bigint as blocks, sum(bytes)::bigint as bytes, sum(written)::bigint as written,
  sum(executed)::bigint as executed, sum(ran)::bigint as ran, sum(scored)::bigint as scored,
  sum(scored * mean_score) / nullif(sum(scored), 0) as mean_score
from block_stats where job_id = :job group by type order by bytes desc
