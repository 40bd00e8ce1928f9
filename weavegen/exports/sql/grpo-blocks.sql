-- The blocks that became of the samples.
select b.id as block_id, b.question, b.block_size, b.ran, s.request -> 'prompt' ->> 'header' as header
from blocks b join candidates c on c.id = b.candidate_id join steps s on s.id = c.step_id
where b.trace_id = :trace and b.id = any(cast(:ids as bigint[]))
