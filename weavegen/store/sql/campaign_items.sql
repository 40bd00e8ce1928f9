-- The items of a batch that have neither answers nor a failure, in the order in which the model wrote them, and where.
-- sampled: token ids of the body; null: the model did not write it like this, or the ids were not kept.
-- stopped: whether a stop string ended the body. step_id, tick, run, ordinal, request: the step that sampled it.
-- revision: of the job's settings. server: base URL of the trace's model server.
-- read_tokens: tokens of the prompt that it was sampled from; null: not known. cut: what was left out of that prompt.
-- assertions: questions that its own assertions asked when it was executed.
-- lost: why the model can't read again what it had read before it wrote; null: it can.
select i.id, c.type, case when x.as_sampled then c.text else w.body end as body,
  case when x.as_sampled and c.depth is null then c.token_ids end as sampled,
  x.as_sampled and c.finish_reason = 'stop' as stopped, c.step_id, s.tick, s.run, s.ordinal, s.request,
  coalesce(k.revision, 0) as revision, t.restarts, t.server, p.tokens as read_tokens, p.cut,
  array(select distinct g.question from blocks e join grounded_labels g on g.step_id = e.executed_by
    where e.candidate_id = c.id and e.type = c.type order by 1) as assertions,
  case when k.id is null then 'its tick was started over'
    when exists (
      select from jsonb_to_recordset(s.request #> '{prompt,recalled}') h (id bigint, example boolean)
      where h.example is not true and not exists (select from blocks r where r.id = h.id)
    ) then 'a block that the model had retrieved is gone' end as lost
from campaign_items i join candidates c on c.id = i.candidate_id
join steps s on s.id = c.step_id join traces t on t.id = c.trace_id
left join blocks b on b.id = i.block_id
left join penalties n on n.candidate_id = c.id
cross join lateral (select case when b.id is not null then coalesce({store/imagined_text}, b.body) end as body) w
cross join lateral (select w.body is null or w.body = btrim(c.text, E'\n') as as_sampled) x
left join ticks k on {store/tick_of_step}
left join prompts p on p.step_id = s.id
where i.batch_id = :batch and i.failure is null
  and not exists (select from answers a where a.item_id = i.id)
order by i.id
