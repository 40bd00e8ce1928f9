-- The seed of the trace that a line of forks began with.
with recursive line as (
  select seed, fork_of from traces where id = :trace
  union all
  select t.seed, t.fork_of from traces t join line on line.fork_of = t.id
)
select seed from line where fork_of is null
