-- proves: the columns candidates and sampled_tokens of a trace equal the sums over its candidates
-- subject: traces
select t.id, 'its row', format('candidates is %s and sampled_tokens is %s, '
    || 'but the recorded ones are %s with %s tokens',
    t.candidates, t.sampled_tokens, coalesce(c.n, 0), coalesce(c.tokens, 0))
from traces t left join (
  select c.trace_id, sum(c.tokens) as tokens,
    count(*) filter (where c.type not in ('bm25-query', 'next-type')) as n
  from candidates c join traces t on t.id = c.trace_id where {scope} group by 1
) c on c.trace_id = t.id
where {scope} and (t.candidates, t.sampled_tokens) <> (coalesce(c.n, 0), coalesce(c.tokens, 0))
order by 1
