-- Copies the revisions of the settings of a fork's job.
insert into job_settings (job_id, revision, settings)
select :job, revision, settings from job_settings where job_id = :parent
