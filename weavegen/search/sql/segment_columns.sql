-- Executed by psycopg itself.
select id, {columns} from corpus_segments where id = any(%s)
