-- What changes about a trace, the fields of LockedTrace; locked until the transaction ends. Others may write rows that
-- refer to the trace, such as annotations and batches of campaigns.
select id, status, ticks, blocks, bytes, written, sampled_tokens from traces where id = :trace for no key update
