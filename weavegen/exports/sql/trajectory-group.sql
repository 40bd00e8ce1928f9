-- The group of a trace: traces of one job with one task, one Harbor task and equal parameters are comparable.
-- Names are for people: tasks that begin with the same words have one, and Harbor tasks with the same instruction have one
-- bootstrap.
select concat(
  j.name, ': ', coalesce(h.name, f.name), ' ',
  left(md5(concat(t.job_id, '/', t.bootstrap_id, '/', t.harbor_task_id, '/', t.params)), 12)
) as name
from traces t
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join harbor_tasks h on h.id = t.harbor_task_id
where t.id = :trace
