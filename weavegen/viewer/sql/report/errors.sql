select stage, type, error, sum(errors)::bigint as errors, max(block_id) as block_id
from errors_by_stage where job_id = :job group by stage, type, error
order by errors desc, stage, type, error limit 15
