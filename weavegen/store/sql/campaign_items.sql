-- The items of a batch that have neither answers nor a failure. The token ids count only for a text as it was sampled.
select i.id, c.type, case when x.as_sampled then c.text else b.body end as body,
  case when x.as_sampled and c.depth is null then c.token_ids end as sampled,
  x.as_sampled and c.finish_reason = 'stop' as stopped, c.step_id, s.tick, s.run, s.ordinal, s.request,
  coalesce(k.revision, 0) as revision, t.restarts, t.server, p.tokens as read_tokens, p.cut,
  array(select distinct g.question from blocks e join grounded_labels g on g.step_id = e.executed_by
    where e.candidate_id = c.id and e.type = c.type order by 1) as assertions
from campaign_items i join candidates c on c.id = i.candidate_id
join steps s on s.id = c.step_id join traces t on t.id = c.trace_id
left join blocks b on b.id = i.block_id
cross join lateral (select b.body is null or b.body = btrim(c.text, E'\n') as as_sampled) x
left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
left join prompts p on p.step_id = s.id
where i.batch_id = :batch and i.failure is null
  and not exists (select from answers a where a.item_id = i.id)
order by i.id
