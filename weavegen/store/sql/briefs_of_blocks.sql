-- The blocks of a trace from :first on that were recorded before :until, in order. until null: all.
select index, type, body from blocks
where trace_id = :trace and index >= :first
  and (created_at < :until or cast(:until as timestamptz) is null)
order by index
