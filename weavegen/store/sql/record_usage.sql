-- Adds to the ledger what a server has served to a trace.
insert into model_usage (
  trace_id, kind, server, owner, requests, sequences, prompt_tokens, cached_tokens, sampled_tokens, uncounted, cost
)
values (
  :trace, :kind, :server, :owner, :requests, :sequences, :prompt_tokens, :cached_tokens, :sampled_tokens, :uncounted,
  :cost
)
