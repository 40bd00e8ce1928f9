-- The candidates of a trace, with the reward of the blocks that were made of them.
select array[c.id] as key, b.reward, c.text from candidates c
left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id where c.trace_id = :trace
