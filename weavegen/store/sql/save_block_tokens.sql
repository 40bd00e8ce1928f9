-- Stores the token ids of a block, unless they are stored.
insert into block_tokens (trace_id, index, token_ids) values (:trace, :index, cast(:token_ids as integer[]))
on conflict do nothing
