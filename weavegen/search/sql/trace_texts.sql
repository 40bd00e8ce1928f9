-- What a query over one trace reads as text: blocks that no segment has, and the examples.
select id, type, body, false as example from blocks
where trace_id = :trace and index >= :first and index < :before and type = any(:types)
union all
select id, type, body, true from examples order by example, id
