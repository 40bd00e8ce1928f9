-- The bytes of the blocks of a trace, and how many are made of candidates.
select coalesce(sum(octet_length(rendered)), 0) as size, count(candidate_id) as written
from blocks where trace_id = :trace
