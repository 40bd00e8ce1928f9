-- The job of a trace that delegates, with the trace's seed.
select j.*, t.seed as trace_seed, t.harbor_task_id is not null as harbor from traces t join jobs j on j.id = t.job_id where t.id = :trace
