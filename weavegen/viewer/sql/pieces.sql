-- Blocks and bytes of each piece of a trace, in order. A page reserves space with them before it fetches any block.
select count(*), sum(octet_length(rendered))::bigint from blocks
where trace_id = :trace group by index / :piece order by index / :piece
