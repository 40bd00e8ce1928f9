-- Mean reward by tick of the bootstraps of the newest jobs, or of :job: whole curves, as many as have 2,000 ticks together,
-- and at least one. `curves`: how many there are in all.
with numbered as (
  select *, dense_rank() over newest as curve, count(*) over newest as ticks_so_far from learning_curves
  where cast(:job as bigint) is null or job_id = :job
  window newest as (order by job_id desc, bootstrap)
)
select job_id, job, bootstrap, tick, traces, reward, ran_share, (select max(curve) from numbered) as curves
from numbered where ticks_so_far <= 2000 or curve = 1 order by curve, tick
