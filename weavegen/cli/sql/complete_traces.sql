-- Executed by psycopg itself.
select t.id::text, left(j.name, 40) || ', ' || t.status from traces t join jobs j on j.id = t.job_id
where starts_with(t.id::text, %s) order by t.id desc limit %s
