-- The blocks of a trace, each with the text it was made of, what was executed, and the answer behind its label.
select b.*, coalesce(p.rewritten, c.text) as chosen, p.candidate_id is not null as linted,
  s.request ->> 'op' as op, coalesce(s.request ->> 'source', '') as source, a.yes, a.no,
  exists (select from scores a where a.candidate_id = b.candidate_id and a.yes + a.no = 0) as undecided
from blocks b left join candidates c on c.id = b.candidate_id left join penalties p on p.candidate_id = c.id
left join steps s on s.id = b.executed_by
left join lateral (
  select a.yes, a.no from scores a where a.candidate_id = b.candidate_id and a.question = b.question
  order by a.stage = 'raw' desc limit 1
) a on true
where b.trace_id = :id order by b.index, b.id
