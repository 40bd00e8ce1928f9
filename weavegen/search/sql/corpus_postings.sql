-- Executed by psycopg itself.
select p.segment, p.word, p.documents, p.data
from unnest(%s::bigint[], %s::text[]) w(segment, word) join corpus_postings p using (segment, word)
