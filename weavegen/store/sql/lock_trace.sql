-- What changes about a trace, the fields of LockedTrace; locked until the transaction ends.
select id, status, ticks, blocks, bytes, written, sampled_tokens from traces where id = :trace for update
