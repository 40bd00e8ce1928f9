-- The traces whose texts are checked.
select t.id, t.seed, t.fork_at, t.blocks, f.source, j.agent from traces t
join bootstraps f on f.id = t.bootstrap_id join jobs j on j.id = t.job_id
where {scope} and t.status <> 'queued' order by t.id
