select penalty, sum(penalised)::bigint as penalised, sum(penalised)::double precision / sum(linted) as share
from penalty_stats where job_id = :job group by penalty having sum(penalised) > 0 order by penalised desc, penalty
