-- Mark segments as replaced. Queries that begin later do not read them.
update corpus_segments set retired_at = clock_timestamp() where id = any(:segments)
