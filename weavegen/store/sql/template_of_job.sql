-- The chat template of a job.
select texts from jobs j join templates t on t.id = j.template_id where j.id = :job
