-- Seconds until a tick's deadline. Those for which the job was paused do not count; the trace's clock may be behind.
select k.deadline + j.paused_seconds - k.paused_seconds + t.lag - extract(epoch from clock_timestamp())
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
where k.trace_id = :trace and k.number = :tick
