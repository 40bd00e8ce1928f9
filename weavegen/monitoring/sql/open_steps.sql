-- The open steps of each queue and kind, without ready steps of paused jobs and without steps that wait for other traces
-- or for people. `oldest`: for how many seconds the longest-waiting ready step has waited, since it became ready or its
-- last attempt began. Uses the partial index on open steps, of which each running trace has a few.
select s.queue, s.kind,
  count(*) filter (where s.status = 'ready') as waiting,
  count(*) filter (where s.status = 'running') as leased,
  count(*) filter (where s.status = 'ready' and s.failure is not null) as retrying,
  extract(epoch from clock_timestamp() - min(greatest(s.ready_at, s.claimed_at)) filter (where s.status = 'ready'))
    ::double precision as oldest
from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
where s.status in ('ready', 'running') and s.kind not in ('work', 'delegate', 'await')
  and (s.status = 'running' or j.state <> 'paused')
group by s.queue, s.kind
order by s.queue collate "C", s.kind collate "C"
