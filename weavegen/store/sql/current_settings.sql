-- The newest revision of the settings of a job.
select coalesce(s.settings, j.settings) as settings
from jobs j left join job_settings s on s.job_id = j.id and s.revision = j.revision where j.id = :job
