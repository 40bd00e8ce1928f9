-- Stores a candidate.
insert into candidates (
  trace_id, step_id, position, block_index, type, round, depth, parent_id, text, finish_reason, tokens, token_ids,
  logprobs
)
values (
  :trace, :step, :position, :index, :type, :round, :depth, :parent, :text, :finish_reason, :tokens,
  cast(:token_ids as integer[]), cast(:logprobs as real[])
)
