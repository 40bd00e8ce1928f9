select spread from segments where trace_id = :trace and number = :segments - 1
