-- Takes a server out of the pool.
update model_servers set removed_at = clock_timestamp() where url = :url and removed_at is null
