-- The recorded prompts of these steps, with the chat template of their jobs. Restarted ticks have none.
select s.id, s.request -> 'prompt' as prompt, p.first_block, p.cut, p.tokens, m.texts as template
from steps s join prompts p on p.step_id = s.id
join ticks k on {store/tick_of_step}
join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
left join templates m on m.id = j.template_id
where s.id = any(cast(:ids as bigint[]))
