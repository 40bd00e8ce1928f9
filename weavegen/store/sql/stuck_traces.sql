-- Running traces of jobs that are not paused without an open step, which must advance: an advance failed, or the step
-- is done. A step of the kind work waits for a subagent's ticks.
select t.id from traces t join jobs j on j.id = t.job_id
where t.status = 'running' and j.state <> 'paused' and not exists (
  select from steps s where s.trace_id = t.id and s.status in ('ready', 'running') and s.kind <> 'work'
)
