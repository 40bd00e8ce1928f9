-- Records who wrote the first blocks of a tick that a fork continues.
update ticks set inherited = cast(:inherited as jsonb) where trace_id = :trace and number = :tick
