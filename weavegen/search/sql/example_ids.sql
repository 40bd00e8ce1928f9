-- The examples, in order.
select id from examples order by id
