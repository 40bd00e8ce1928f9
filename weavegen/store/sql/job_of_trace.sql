-- The job of a trace.
select job_id from traces where id = :trace
