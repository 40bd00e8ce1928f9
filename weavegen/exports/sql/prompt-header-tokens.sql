-- The token ids of a prompt's text in no block, as text.
select token_ids::text from prompts where step_id = :step
