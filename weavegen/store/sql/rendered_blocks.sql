-- The rendered blocks of a trace from :first on, before :end, in order.
select rendered from blocks where trace_id = :trace and index >= :first and index < :end order by index
