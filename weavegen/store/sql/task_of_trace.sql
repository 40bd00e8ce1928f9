-- What a trace began with: its bootstrap file or task, and its job's model.
select b.name, b.source, j.model
from traces t join bootstraps b on b.id = t.bootstrap_id join jobs j on j.id = t.job_id where t.id = :trace
