-- What was sampled for a block: with the answers about each (columns of scores), what linting found (of penalties), and
-- what came of it when it was tried (of trials).
select c.id, s.run, c.round, c.depth, c.parent_id as parent, c.position,
  c.text, c.tokens, c.finish_reason, c.type,
  (select json_agg(a order by a.id) from scores a where a.candidate_id = c.id) as answers,
  (select to_json(p) from penalties p where p.candidate_id = c.id) as linted,
  coalesce((select to_json(t) from trials t where t.candidate_id = c.id), '{}') as trial
from steps s join candidates c on c.step_id = s.id
where s.trace_id = :trace and s.tick = :tick and s.kind = 'sample' and c.block_index = :index
order by s.run desc, s.ordinal, c.position
