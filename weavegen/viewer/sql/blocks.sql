-- Blocks with the answers about their candidates (columns of scores), what linting found in them (of penalties), what
-- people say about them, and how many candidates were sampled for each. These are counted by way of the steps of the
-- tick, which have an index: a trace may have a million. The shared blocks of a fork were sampled in another trace, and
-- count their own candidate.
select b.index, b.tick, b.subagent, b.type, b.body, b.timestamp, b.time_remaining,
  b.bm25_query, b.title, b.compiles, b.question, b.answer, b.probability, b.ran, b.exception, b.tags,
  b.score, b.reward, k.protected as reward_protected, b.preference, b.candidate_id, c.tokens, c.logprobs is not null as has_logprobs,
  (select json_agg(a order by a.id) from scores a where a.candidate_id = b.candidate_id) as answers,
  (select to_json(p) from penalties p where p.candidate_id = b.candidate_id) as penalties,
  (select json_agg(json_build_object('author', author, 'verdict', verdict, 'labels', labels, 'note', note,
    'at', left((changed_at at time zone 'UTC')::text, 16)) order by a.id)
    from annotations a where a.candidate_id = b.candidate_id or a.block_id = b.id) as annotations,
  coalesce(nullif((
    select count(*) from steps s join candidates o on o.step_id = s.id
    where s.trace_id = b.trace_id and s.tick = b.tick and s.kind = 'sample' and o.block_index = b.index
      and o.type not in ('bm25-query', 'next-type')
  ), 0), (b.candidate_id is not null)::int) as candidates
from blocks b left join candidates c on c.id = b.candidate_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
