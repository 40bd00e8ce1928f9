-- Finished ticks after a cursor. They wait for some seconds, because a tick that ended earlier may be committed later.
select k.id, k.trace_id, k.number, k.run, k.subagent, k.reward, k.finished_at, t.job_id, j.name as job, j.agent,
  j.model, f.name as bootstrap
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
where (k.finished_at, k.id) > (:at, :id)
  and k.finished_at < clock_timestamp() - make_interval(secs => :settled)
  and (cast(:job as bigint) is null or t.job_id = :job)
order by k.finished_at, k.id limit :limit
