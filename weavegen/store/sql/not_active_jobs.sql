-- The jobs of these traces that are paused or draining.
select id, state from jobs
where state <> 'active' and id in (select job_id from traces where id = any(:traces)) order by id
