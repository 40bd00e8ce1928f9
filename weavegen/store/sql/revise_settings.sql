-- Gives a job a new revision of its settings.
with revised as (update jobs set revision = :revision where id = :job)
insert into job_settings (job_id, revision, settings) values (:job, :revision, cast(:settings as jsonb))
