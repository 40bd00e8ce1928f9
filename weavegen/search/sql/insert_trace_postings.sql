insert into postings (trace_id, segment, word, documents, blocks)
select :trace, :segment, *
from unnest(cast(:words as text[]), cast(:documents as bigint[]), cast(:blocks as bytea[]))
