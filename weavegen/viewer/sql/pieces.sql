select count(*), sum(octet_length(rendered))::bigint from blocks
where trace_id = :trace group by index / :piece order by index / :piece
