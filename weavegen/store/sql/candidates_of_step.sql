-- The candidates of one Sample step, by position. token_ids: null where :tokens is false, or they were not kept.
-- legal: the text cut to its legal structure; null where :legal is false.
select c.id, c.text, c.tokens, c.finish_reason, c.depth, case when :tokens then c.token_ids end as token_ids,
  case when :legal then coalesce((select rewritten from penalties where candidate_id = c.id), c.text) end as legal
from candidates c join steps s on s.id = c.step_id
where s.trace_id = :trace and s.tick = :tick and s.run = :run and s.ordinal = :ordinal order by c.position
