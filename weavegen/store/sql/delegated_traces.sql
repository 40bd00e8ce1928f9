-- How many traces were delegated in the whole tree of delegations that a trace belongs to.
with recursive callers as (
  select id, called_by from traces where id = :trace
  union all
  select t.id, t.called_by from callers c join steps s on s.id = c.called_by join traces t on t.id = s.trace_id
), tree as (
  select id from callers where called_by is null
  union all
  select t.id from tree
  join steps s on s.trace_id = tree.id and s.kind = 'delegate' join traces t on t.called_by = s.id
)
select count(*) - 1 from tree
