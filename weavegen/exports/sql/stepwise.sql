-- Ticks with their blocks from the first step on; `step_id` is the step that sampled that one. `label`: whether a block
-- was right; null: unknown. Of a row that ends with a candidate that was not chosen: the blocks before it, and the
-- candidate in the place of the chosen one.
select v.*, w.step_id, w.blocks
from unnest(cast(:tick as bigint[]), cast(:ending as bigint[])) k (tick, ending)
join stepwise_examples v on v.trace_id = :trace and v.tick = k.tick and v.ending = k.ending
cross join lateral (
  select (array_agg(s.step_id order by s.index))[1] as step_id, jsonb_agg(to_jsonb(s) order by s.index) as blocks
  from (
    select b.index, b.type, coalesce(n.rewritten, l.text, b.body) as body,
      case
        when l.id is null and b.compiles then b.rendered
        when b.compiles then replace(b.rendered, b.body, coalesce(n.rewritten, l.text))
        -- The chosen one is not legal Python, and is shown as comment lines, which would tell its label.
        else replace(regexp_replace(b.rendered, E'^#invalid_syntax .*\n', '', 'n'),
          '# ' || replace(b.body, E'\n', E'\n# '), coalesce(n.rewritten, l.text, b.body))
      end as rendered,
      coalesce(l.step_id, c.step_id) as step_id,
      case
        when l.id is not null then r.ran
        when c.id is null then null when not b.compiles then false when b.ran is not null then b.ran
        when b.preference is not null then b.preference >= 0
      end as label
    from blocks b
    left join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
    left join candidates e on e.id = v.candidate_id
    left join candidates l on l.id = e.id and l.block_index = b.index
    left join penalties n on n.candidate_id = l.id
    left join trials r on r.candidate_id = l.id
    where b.trace_id = v.trace_id and b.tick = v.tick and b.index >= v.first_step
      and (e.id is null or b.index <= e.block_index)
  ) s
) w
