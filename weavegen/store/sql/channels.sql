-- The channels of a trace, in the order in which they were opened.
select name, id from channels where trace_id = :trace order by id
