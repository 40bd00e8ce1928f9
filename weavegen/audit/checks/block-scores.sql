-- proves: a block's score is the mean of the answers about its text, minus 2 if it does not compile; it
--   has none if no answer is defined
-- subject: blocks
select b.trace_id, 'block ' || b.index, case
    when a.raw = 0 and p.compiles and coalesce(p.rewritten, c.text) <> trim(both E'\n' from c.text)
      then 'it was rewritten, but its new text was never scored'
    else format('its score is %s, but the answers give %s', coalesce(b.score::text, 'missing'), coalesce(a.mean::text, 'none'))
  end
from blocks b join traces t on t.id = b.trace_id
join candidates c on c.id = b.candidate_id join penalties p on p.candidate_id = c.id
cross join lateral (
  select count(*) filter (where a.stage = 'raw') as raw,
    case when bool_or(a.stage = 'raw') then avg(a.score) filter (where a.stage = 'raw')
      else avg(a.score) filter (where a.stage = 'selection') end
    - case when p.compiles then 0 else 2 end as mean
  from scores a where a.candidate_id = c.id
) a
where {scope} and ((b.score is null) <> (a.mean is null) or abs(b.score - a.mean) > 1e-6
  or a.raw = 0 and p.compiles and coalesce(p.rewritten, c.text) <> trim(both E'\n' from c.text))
order by 1, b.index
