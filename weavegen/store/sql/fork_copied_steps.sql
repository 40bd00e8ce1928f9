-- Part of other queries: each step of the other trace, and its copy.
copied as (
  select o.id as old, c.id as new from steps c join steps o on o.trace_id = :parent
    and (o.tick, o.run, o.ordinal) = (c.tick, c.run, c.ordinal)
  where c.trace_id = :child
)
