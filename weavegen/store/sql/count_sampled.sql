-- Adds to the counts of a trace: candidates of blocks, and sampled tokens.
update traces set candidates = candidates + :candidates, sampled_tokens = sampled_tokens + :tokens where id = :trace
