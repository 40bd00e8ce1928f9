-- Candidates with their values.
select * from candidate_values where trace_id = :trace and candidate_id = any(cast(:ids as bigint[]))
