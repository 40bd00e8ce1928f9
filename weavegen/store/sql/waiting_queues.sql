-- Queues with ready steps, without those of paused jobs and those that wait for their next attempt after an error.
select s.queue,
  {store/queue_is_served} as served,
  count(*) as waiting,
  extract(epoch from clock_timestamp() - min(greatest(s.ready_at, s.claimed_at)))::double precision as oldest,
  extract(epoch from clock_timestamp() - min(greatest(s.ready_at, s.claimed_at)) filter (where s.claims = 0))
    ::double precision as untried
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status = 'ready' and t.status = 'running' and j.state <> 'paused'
  and (s.failure is null or s.send_after <= clock_timestamp())
group by s.queue
order by s.queue collate "C"
