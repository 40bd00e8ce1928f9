-- Records that a trace works on a request.
update requests set trace_id = :trace where id = :request
