-- All blocks that the index takes, for `weavegen reindex`.
create temporary table indexed_anew on commit drop as
select b.id, row_number() over (order by b.id) - 1 as place from blocks b join traces t on t.id = b.trace_id
where b.type = any(:types) and b.index >= coalesce(t.fork_at, 0)
