-- Two texts for one prompt, one better than the other.
-- candidates: sampled for the same block after the same prompt: with equal headers, and equal drafts if it shows one. Texts
--   that failed, as the block or when they were tried, texts that are not legal Python, and actions after which fewer of
--   the task's evaluations were true than after another one are the worst, then those of low value; texts that ran are
--   the best, then those of high value. Pair 1 has the best and the worst, pair 2 the second best and the second worst,
--   and so on: no text is in two pairs of a block.
-- correction: a callback block that failed, or is not legal Python, and the next attempt, which ran. The prompt is that
--   of the failed block. The two were scored after different prompts, so the pair has no margin.
-- annotated: two texts of one prompt of which people call one good and the other bad, or mostly so. Such verdicts go
--   before values: a pair of the kind candidates never contradicts one.
create view preference_pairs as
with judged as (
  select x.candidate_id, sum(case x.verdict when 'good' then 1 else -1 end) as liking
  from annotated_candidates x where x.verdict is not null group by x.candidate_id
),
pairs as (
  select
    'candidates' as kind, g.trace_id, g.index, u.pair::bigint, g.step_id, u.chosen_id, u.rejected_id,
    u.chosen_value, u.rejected_value, u.chosen_value - u.rejected_value as margin, u.rejected_bad as outcome_differs
  from (
    select
      d.trace_id, d.index, min(d.step_id) as step_id,
      -- A text that failed, is not legal Python or fell short is never the better one.
      array_agg(d.candidate_id order by d.ran, d.value desc, d.candidate_id) filter (where not d.bad) as best,
      array_agg(d.value order by d.ran, d.value desc, d.candidate_id) filter (where not d.bad) as best_values,
      array_agg(d.candidate_id order by d.bad desc, coalesce(d.ran, false), d.value, d.candidate_id desc) as worst,
      array_agg(d.value order by d.bad desc, coalesce(d.ran, false), d.value, d.candidate_id desc) as worst_values,
      array_agg(d.bad order by d.bad desc, coalesce(d.ran, false), d.value, d.candidate_id desc) as worst_bad
    from (
      select e.*, e.fell_short or coalesce(e.achieved < max(e.achieved) over (
        partition by e.trace_id, e.index, e.header, e.draft), false) as bad
      from (
      -- Equal texts count once: as the candidate that became the block, about which more is known.
      select distinct on (v.trace_id, v.index, r.header, r.draft, v.text)
        v.trace_id, v.index, r.header, r.draft, v.step_id, v.candidate_id, v.value,
        v.failed or not v.compiles as fell_short, v.ran, v.achieved
      from candidate_values v join steps s on s.id = v.step_id
      cross join lateral (
        select s.request -> 'prompt' ->> 'header' as header, s.request -> 'prompt' ->> 'draft' as draft
      ) r
      where v.value is not null and (v.depth is null or v.finish_reason = 'stop')
      order by v.trace_id, v.index, r.header, r.draft, v.text, v.block_id is null, v.candidate_id
      ) e
    ) d
    group by d.trace_id, d.index, d.header, d.draft
  ) g
  cross join lateral unnest(g.best, g.worst, g.best_values, g.worst_values, g.worst_bad) with ordinality
    as u (chosen_id, rejected_id, chosen_value, rejected_value, rejected_bad, pair)
  left join judged h on h.candidate_id = u.chosen_id
  left join judged l on l.candidate_id = u.rejected_id
  -- Without texts of the worst kind, the second half of the pairs is the first in reverse.
  where (2 * u.pair <= cardinality(g.worst) and u.chosen_value > u.rejected_value
      or u.rejected_bad and u.chosen_id <> u.rejected_id)
    and coalesce(h.liking, 0) >= 0 and coalesce(l.liking, 0) <= 0
    and not (coalesce(h.liking, 0) > 0 and coalesce(l.liking, 0) < 0)
  union all
  select 'annotated', g.trace_id, g.index, u.pair::bigint, g.step_id, u.chosen_id, u.rejected_id, null, null, null,
    w.failed or coalesce(not w.compiles, false) or coalesce(w.achieved < h.achieved, false)
  from (
    select c.trace_id, c.block_index as index, min(c.step_id) as step_id,
      array_agg(c.id order by v.liking desc, c.id) filter (where v.liking > 0) as best,
      array_agg(c.id order by v.liking, c.id) filter (where v.liking < 0) as worst
    from judged v join candidates c on c.id = v.candidate_id join steps s on s.id = c.step_id
    where c.depth is null or c.finish_reason = 'stop'
    group by c.trace_id, c.block_index, s.request -> 'prompt' ->> 'header', s.request -> 'prompt' ->> 'draft'
  ) g
  cross join lateral unnest(g.best, g.worst) with ordinality as u (chosen_id, rejected_id, pair)
  join candidate_values h on h.candidate_id = u.chosen_id
  join candidate_values w on w.candidate_id = u.rejected_id
  where h.text <> w.text
  union all
  select
    'correction', b.trace_id, b.index, 1, c.step_id, n.candidate_id, b.candidate_id, null, null, null, true
  from blocks b
  join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
  join lateral (
    select a.candidate_id, a.body, a.ran, a.index from blocks a
    where a.trace_id = b.trace_id and a.tick = b.tick and a.type = b.type and a.index > b.index
    order by a.index limit 1
  ) n on n.ran and n.candidate_id is not null and n.body <> b.body
  where b.type in ('action', 'evaluation', 'observation-inference')
    and (b.ran is false or not b.compiles or b.type <> 'observation-inference' and b.preference < 0)
    and exists (
      select from blocks e where e.trace_id = b.trace_id and e.index > b.index and e.index < n.index
        and e.type = 'debug'
    )
)
select
  p.kind, p.trace_id, p.index, t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap,
  t.status as trace_status, s.tick, c.type, p.pair, p.margin, p.outcome_differs, p.chosen_value, p.rejected_value, p.chosen_id,
  p.rejected_id, c.text as chosen, r.text as rejected, b.id is not null as chosen_kept, coalesce(
    x.ran, case when x.compiles and x.type in ('action', 'evaluation') and x.preference < 0 then false end, y.ran
  ) as rejected_ran,
  k.reward as tick_reward, k.protected as tick_protected, coalesce(q.cut -> 'blocks_shortened_to', '{}') = '{}' as exact_prompt, p.step_id
from pairs p
join candidates c on c.id = p.chosen_id
join candidates r on r.id = p.rejected_id
join steps s on s.id = p.step_id
join prompts q on q.step_id = p.step_id
join traces t on t.id = p.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
left join ticks k on k.trace_id = p.trace_id and k.number = s.tick
left join blocks b on b.candidate_id = p.chosen_id and b.trace_id = p.trace_id
left join blocks x on x.candidate_id = p.rejected_id and x.trace_id = p.trace_id
left join trials y on y.candidate_id = p.rejected_id;

comment on view preference_pairs is
  'Two texts for one prompt, one better than the other: by value among the candidates of a block, a failed attempt and the next one, which ran, or as people say.';
comment on column preference_pairs.kind is
  'candidates: two of one block; correction: a failed attempt and the next one, which ran; annotated: people call one good and the other bad.';
comment on column preference_pairs.trace_id is 'Its trace.';
comment on column preference_pairs.index is 'Index of the block that the prompt asked for.';
comment on column preference_pairs.job_id is 'Its job.';
comment on column preference_pairs.job is 'Name of the job.';
comment on column preference_pairs.agent is 'The program that wrote the trace: weave, planning, ...';
comment on column preference_pairs.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column preference_pairs.bootstrap is 'File name of the bootstrap.';
comment on column preference_pairs.trace_status is 'queued, running, ended, failed or cancelled.';
comment on column preference_pairs.tick is 'Number of its tick.';
comment on column preference_pairs.type is 'Type of the block.';
comment on column preference_pairs.pair is 'Number among the pairs of one prompt, from 1, those of different outcome first, then the widest margin.';
comment on column preference_pairs.margin is
  'chosen_value minus rejected_value, above 0 unless the outcomes differ; null: the two were scored after different prompts, or people compared them.';
comment on column preference_pairs.outcome_differs is
  'Whether the worse text failed, is not legal Python, or left fewer of the task''s evaluations true, unlike the better one.';
comment on column preference_pairs.chosen_value is
  'Value of the better text, see candidate_values; null unless kind is candidates.';
comment on column preference_pairs.rejected_value is 'Value of the worse text; null unless kind is candidates.';
comment on column preference_pairs.chosen_id is 'candidates.id of the better text.';
comment on column preference_pairs.rejected_id is 'candidates.id of the worse text.';
comment on column preference_pairs.chosen is 'The better body, as sampled.';
comment on column preference_pairs.rejected is 'The worse body, as sampled.';
comment on column preference_pairs.chosen_kept is 'Whether the better text became a block.';
comment on column preference_pairs.rejected_ran is
  'Whether the worse text ran without errors, as the block or when it was tried; null: neither.';
comment on column preference_pairs.tick_reward is
  'The tick''s reward, 0 to 0.5; in a Harbor task that of its tests. Null: it runs, or has none.';
comment on column preference_pairs.tick_protected is
  'Whether that reward counts protected evaluations only, which the agent can''t forge; null: there is no tick.';
comment on column preference_pairs.exact_prompt is
  'Whether the prompt can be rebuilt exactly: no block in it was shortened.';
comment on column preference_pairs.step_id is 'A step with the prompt of the pair.';
