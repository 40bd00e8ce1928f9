-- Labels of these blocks, with the rewards of their ticks.
select v.*, k.reward as tick_reward, k.protected as tick_protected from verifier_labels v
left join ticks k on k.trace_id = v.trace_id and k.number = v.tick
where v.trace_id = :trace and v.block_id = any(cast(:block_id as bigint[]))
