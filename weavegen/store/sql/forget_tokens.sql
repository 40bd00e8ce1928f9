-- Deletes the token ids of a finished tick's candidates: all (:keep is none), or all but those of the chosen ones.
update candidates set token_ids = null, logprobs = null
where step_id in (select id from steps where trace_id = :trace and tick = :tick and kind = 'sample')
  and token_ids is not null
  and (:keep <> 'chosen' or id not in (
    select candidate_id from blocks where trace_id = :trace and tick = :tick and candidate_id is not null))
