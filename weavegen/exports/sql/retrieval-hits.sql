-- The hits of a query that were in the prompt.
select coalesce(h.example_id, h.block_id) as id, h.example_id is not null as example, h.score from retrieval_hits h
where h.retrieval_id = :retrieval and h.used order by h.rank
