-- What was sampled for a block: with the answers about each (columns of scores), what linting found (of penalties), and
-- the result of its trial (of trials), which is sound if its assertions held and no evaluation of its tick raised; and what
-- people say about it.
select c.id, s.run, c.round, c.depth, c.parent_id as parent, c.position,
  c.text, c.tokens, c.finish_reason, c.type,
  (select json_agg(a order by a.id) from scores a where a.candidate_id = c.id) as answers,
  (select to_json(p) from penalties p where p.candidate_id = c.id) as linted,
  (select json_agg(json_build_object('author', author, 'verdict', verdict, 'labels', labels, 'note', note,
    'at', left((changed_at at time zone 'UTC')::text, 16)) order by a.id)
    from annotations a where a.candidate_id = c.id) as annotations,
  coalesce((select to_jsonb(t) || jsonb_build_object('sound',
      not jsonb_path_exists(assertions, '$[*] ? (@.answer == false)')
      and not jsonb_path_exists(evaluations, '$[*] ? (@.scope == "tick" && @.error != null)'))
    from trials t where t.candidate_id = c.id), '{}') as trial
from steps s join candidates c on c.step_id = s.id
where s.trace_id = :trace and s.tick = :tick and s.kind = 'sample' and c.block_index = :index
order by s.run desc, s.ordinal, c.position
