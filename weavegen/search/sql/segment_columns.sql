-- Executed by psycopg itself.
select id, {names} from corpus_segments where id = any(%s)
