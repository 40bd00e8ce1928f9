-- proves: steps of a run are numbered from 0 without gaps, and every run has steps, except a conversation's
--   first tick and a failed trace's last run
-- subject: steps
select trace_id, 'step ' || id, format('%s steps before it are missing', step - 1)
from (
  select s.trace_id, s.id, s.copy_of, s.ordinal - lag(s.ordinal, 1, -1::bigint) over w as step
  from steps s join traces t on t.id = s.trace_id where {scope}
  window w as (partition by s.trace_id, s.tick, s.run order by s.ordinal)
) x where step > 1 and copy_of is null  -- a fork copies only the executed steps of finished ticks
union all
select t.id, 'tick ' || k.number, format('run %s has no steps', r.run)
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
cross join lateral generate_series(0, k.run) as r(run)
where {scope} and not exists (
    select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.run = r.run)
  and not (k.number = 0 and j.agent = any(:conversing))
  and not (t.status = 'failed' and k.finished_at is null and r.run = k.run)
  and not (t.fork_of is not null and coalesce(k.finished_at < t.started_at, false))
order by 1
