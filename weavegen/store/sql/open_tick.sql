-- The open tick of a trace, the innermost one where subagents work; and what else the trace goes on from.
select k.number, k.run, k.version, k.first_block, k.clock, k.subagent, k.caller, k.deadline, k.repeats, k.revision,
  k.state, k.paused_seconds, k.inherited, t.seed, t.lag, j.revision as newest_revision,
  j.paused_seconds as newest_paused_seconds,
  j.state = 'paused' as paused,
  (select max(number) from ticks where trace_id = k.trace_id) as newest,
  (select type from blocks where trace_id = k.trace_id and index = k.first_block - 1) as last_type,
  (select host from environments where trace_id = k.trace_id and closed_at is null) as host
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
where k.trace_id = :trace and k.finished_at is null order by k.number desc limit 1
