-- Executed blocks of a job by how much they are worth reviewing. Blocks that :me had not annotated at :since (in
-- milliseconds) come first: later annotations do not move a block, so that no page leaves any out. Of more than 2,000
-- traces, 2,000 are examined. `worth` is the sum of: the distance of the evaluator's probability from the outcome; 1 /
-- the number of such errors in the job; 1 if people disagree; 1 if another model or rubric gives the opposite answer.
-- The outcome of a block that failed is 0; that of an action that ran is its tick's reward as a share of its maximum,
-- 0.5; else it is 1. The probability of a block without a score is null, which greatest and least would leave out.
with own as materialized (
  select id, fork_at from traces where job_id = :job order by md5(id::text) limit 2000
), executed as materialized (
  select b.id, b.trace_id, b.index, b.tick, b.type, b.ran, b.exception, b.candidate_id, k.reward as tick_reward,
    case when b.score is not null then 1 / (1 + exp(-greatest(-50, least(50, b.score)))) end as judge,
    case when not b.ran then 0 when b.type = 'action' then coalesce(least(1, 2 * k.reward), 1) else 1 end as outcome
  from own t join blocks b on b.trace_id = t.id and b.index >= coalesce(t.fork_at, 0)
  left join ticks k on k.trace_id = t.id and k.number = b.tick
  where b.ran is not null
), errors as (
  select exception, count(*) as seen from executed where exception is not null group by exception
), said as (
  select e.id, count(distinct a.verdict) > 1 as people_disagree, bool_or(a.author = :me and a.changed_at < to_timestamp(:since / 1000.0)) as mine
  from own t join annotations a on a.trace_id = t.id
  join executed e on e.trace_id = a.trace_id and (e.candidate_id = a.candidate_id or e.id = a.block_id) group by e.id
), asked_again as (
  select distinct i.candidate_id from own t join campaign_batches g on g.trace_id = t.id
  join campaign_items i on i.batch_id = g.id join answers a on a.item_id = i.id
  join scores s on s.candidate_id = i.candidate_id and s.question = a.question
  where a.score * s.score < 0
), worth as (
  select e.*, r.seen, coalesce(x.people_disagree, false) as people_disagree, coalesce(x.mine, false) as mine,
    j.candidate_id is not null as judges_disagree,
    coalesce(abs(e.judge - e.outcome), 0) + coalesce(1.0 / r.seen, 0) + coalesce(x.people_disagree, false)::int
      + (j.candidate_id is not null)::int as worth
  from executed e left join errors r on r.exception = e.exception left join said x on x.id = e.id
  left join asked_again j on j.candidate_id = e.candidate_id
)
select trace_id, index, tick, type, (select body from blocks b where b.id = w.id) as body, ran, exception, seen, judge, outcome, tick_reward, people_disagree,
  judges_disagree, mine, worth, candidate_id,
  (select json_agg(json_build_object('author', author, 'verdict', verdict, 'labels', labels, 'note', note,
    'at', left((changed_at at time zone 'UTC')::text, 16)) order by a.id)
    from annotations a where a.candidate_id = w.candidate_id or a.block_id = w.id) as annotations,
  (select left(e.body, 1000) from blocks e
    where e.trace_id = w.trace_id and e.index = w.index + 1 and e.type = 'error') as error
from (select * from worth order by mine, worth desc, trace_id, index limit :limit offset :offset) w
order by mine, worth desc, trace_id, index
