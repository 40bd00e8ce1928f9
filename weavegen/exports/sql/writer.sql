-- The model that wrote a trace; null: its job named none.
select j.model from traces t join jobs j on j.id = t.job_id where t.id = :trace
