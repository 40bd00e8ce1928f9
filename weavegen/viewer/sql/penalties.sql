-- The results of linting candidates.
select * from penalties where candidate_id = any(:ids)
