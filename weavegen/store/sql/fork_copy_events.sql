-- As many events as ticks were started over before the cut.
insert into events (trace_id, at, kind, detail)
select :child, at, kind, detail from events where trace_id = :parent and kind = 'tick restarted' order by id
limit (select coalesce(sum(run), 0) from ticks where trace_id = :child)
