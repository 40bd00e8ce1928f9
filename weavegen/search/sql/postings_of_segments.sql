-- Executed by psycopg itself.
select word, segment, documents, data from corpus_postings where segment = any(%s) order by word, segment
