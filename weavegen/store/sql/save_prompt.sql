-- Stores what the model read in a step.
insert into prompts (trace_id, step_id, server, model, first_block, tokens, cached, cut, length, token_ids)
values (
  :trace, :step, :server, :model, :first_block, :tokens, :cached, cast(:cut as jsonb), :length,
  cast(:token_ids as integer[])
)
