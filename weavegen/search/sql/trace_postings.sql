select word, string_agg(blocks, '' order by segment) as blocks from postings
where trace_id = :trace and word = any(:words) and segment < :segments group by word
