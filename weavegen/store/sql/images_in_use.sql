-- The names of Harbor tasks on which open traces work, or will.
select distinct h.name from harbor_tasks h join traces t on t.harbor_task_id = h.id
where t.status in ('queued', 'running')
