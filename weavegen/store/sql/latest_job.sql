-- The newest job that people enqueued.
select max(id) from jobs where called_by is null
