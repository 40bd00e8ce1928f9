-- What came of candidates that were tried.
select * from trials where candidate_id = any(:ids)
