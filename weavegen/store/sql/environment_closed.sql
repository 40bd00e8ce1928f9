-- Records that an environment was stopped, or found dead.
update environments set closed_at = clock_timestamp() where trace_id = :trace and closed_at is null
