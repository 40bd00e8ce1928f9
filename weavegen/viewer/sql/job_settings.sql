-- How a job was enqueued.
select seed, version, enqueued_by, created_at, settings from jobs where id = :job
