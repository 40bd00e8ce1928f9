-- Blocks, as retrieval shows them.
select id, type, rendered from blocks where id = any(cast(:ids as bigint[]))
