-- A trace, and those whose blocks it shares as a fork, each with the index at which these end. No rows if :trace is null.
with recursive lineage (id, "end") as (
  select cast(:trace as bigint), cast(2147483647 as bigint) where :trace is not null
  union all
  select t.fork_of, least(t.fork_at, l."end") from lineage l join traces t using (id) where t.fork_of is not null
)
select id, "end" from lineage
