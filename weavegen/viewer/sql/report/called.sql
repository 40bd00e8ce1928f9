-- Jobs that traces of this job called. No other figure counts them.
select y.job_id, y.job, y.agent, y.traces, y.ended, y.failed, y.blocks, y.bytes, y.sampled_tokens
from yield_by_job y join jobs j on j.id = y.job_id where j.called_by = :job order by y.job_id
