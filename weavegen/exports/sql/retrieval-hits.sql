-- The hits of a query that were in the prompt.
select h.block_id, h.example_id, h.score, h.rank from retrieval_hits h
where h.retrieval_id = :retrieval and h.used order by h.rank
