-- The names of Harbor tasks on which open traces work, or will, and the hashes of these tasks' files.
select distinct unnest(array[h.name, h.sha256]) from harbor_tasks h join traces t on t.harbor_task_id = h.id
where t.status in ('queued', 'running')
