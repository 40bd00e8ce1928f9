-- proves: in later turns the model read exactly the tokens that it had sampled for a message
-- subject: replies
select b.trace_id, 'block ' || b.index, case
    when o.token_ids[1:x.opening] <> p.token_ids
      then 'its tokens do not begin with the opening of an assistant message'
    when x.same > x.sampled
      then format('it has %s tokens, but the model sampled %s', x.kept, x.sampled)
    else 'its tokens differ from those that the model sampled'
  end
from blocks b join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id
left join templates m on m.id = j.template_id
join candidates c on c.id = b.candidate_id join prompts p on p.step_id = c.step_id
join block_tokens o on o.trace_id = b.trace_id and o.index = b.index
cross join lateral (
  -- same: how many sampled tokens must recur. The last ones may differ: they hold the stop sequence.
  select l.*, greatest(0, l.sampled - :tail, l.kept - l.opening - l.closing - 8) as same from (
    select cardinality(p.token_ids) as opening, cardinality(c.token_ids) as sampled,
      cardinality(o.token_ids) as kept,
      coalesce(length(m.texts ->> 'assistant_close'), :close) as closing
  ) l
) x
where {scope} and b.type = 'assistant' and (o.token_ids[1:x.opening] <> p.token_ids or x.same > x.sampled
  or o.token_ids[x.opening + 1:x.opening + x.same] <> c.token_ids[1:x.same])
order by 1, b.index
