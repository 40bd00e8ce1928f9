-- Candidates of steps, each with what linting found and with the prompt.
select c.step_id, c.text, c.finish_reason, c.tokens as n, r.tokens as prompt_tokens, r.length, c.type, p.*
from candidates c left join penalties p on p.candidate_id = c.id left join prompts r on r.step_id = c.step_id
where c.step_id = any(:steps) order by c.step_id, c.position
