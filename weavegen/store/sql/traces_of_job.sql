-- The traces of a job, in order.
select id from traces where job_id = :job order by number
