-- All candidates for these block indexes. Those with equal headers were sampled for the same block.
select v.*, s.request -> 'prompt' ->> 'header' as header from candidate_values v join steps s on s.id = v.step_id
where v.trace_id = :trace and v.index = any(cast(:indexes as bigint[]))
  and (v.depth is null or v.finish_reason = 'stop') order by v.step_id, v.position
