-- The candidates of one Sample step, by position. token_ids: null where :tokens is false, or they were not kept.
select c.id, c.text, coalesce(n.rewritten, c.text) as legal, c.tokens, c.finish_reason, c.depth, case when :tokens then c.token_ids end as token_ids
from candidates c join steps s on s.id = c.step_id left join penalties n on n.candidate_id = c.id
where s.trace_id = :trace and s.tick = :tick and s.run = :run and s.ordinal = :ordinal order by c.position
