-- A page of the bodies that a query may find.
select b.index, b.body from blocks b where b.trace_id = :trace and b.index >= :first
  and b.type in ('orientation', 'action', 'evaluation', 'debug', 'error') order by b.index limit :limit
