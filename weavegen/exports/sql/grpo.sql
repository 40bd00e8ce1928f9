-- Blocks with all candidates of their index. Those with equal headers and drafts were sampled after the same prompt.
with sampled as materialized (
  select v.*, s.request -> 'prompt' ->> 'header' as header,
    s.request -> 'prompt' ->> 'draft' as draft
  from candidate_values v join steps s on s.id = v.step_id
  where v.trace_id = :trace and v.index = any(cast(:index as bigint[]))
    and (v.depth is null or v.finish_reason = 'stop')
)
select v.trace_id, v.index, v.block_id, v.type, v.job, v.model, v.bootstrap, v.tick_reward, v.tick_protected, v.step_id,
  b.question, b.block_size, b.ran, g.*
from sampled v
join blocks b on b.id = v.block_id
cross join lateral (
  select
    array_agg(o.text order by o.step_id, o.position) as texts,
    array_agg(o.finish_reason order by o.step_id, o.position) as reasons,
    array_agg(o.value order by o.step_id, o.position) as sample_values,
    array_agg(o.score order by o.step_id, o.position) as sample_scores,
    array_agg(o.penalty order by o.step_id, o.position) as sample_penalties,
    count(*) filter (where (o.step_id, o.position) < (v.step_id, v.position)) as kept
  from sampled o where o.index = v.index and o.header is not distinct from v.header
    and o.draft is not distinct from v.draft
) g
where v.block_id = any(cast(:block_id as bigint[]))
