-- Index of the first block that two traces do not have in common; null: there is none.
select min(coalesce(x.index, y.index))
from (select index, type, body from blocks where trace_id = :a) x
full join (select index, type, body from blocks where trace_id = :b) y on y.index = x.index
where x.type is distinct from y.type or x.body is distinct from y.body
