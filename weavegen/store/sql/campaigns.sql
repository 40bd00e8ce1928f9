-- All campaigns, or one, with their progress. state: active, stopped or done. done: items of finished batches, failed
-- items included. finished_at: null until it is done.
select name, over, case when finished then 'done' else state end as state, rubric_version, model, items, done, failed,
  answers, created_at, case when finished then finished_at end as finished_at
from (
  select c.id, c.name, c.over, c.state, c.rubric_version, c.model, c.created_at, count(i.id) as items,
    count(i.id) filter (where b.status = 'done') as done, count(i.failure) as failed,
    (select count(*) from answers a join campaign_items x on x.id = a.item_id
      join campaign_batches y on y.id = x.batch_id where y.campaign_id = c.id) as answers,
    coalesce(bool_and(b.status = 'done'), true) as finished, max(b.finished_at) as finished_at
  from campaigns c left join campaign_batches b on b.campaign_id = c.id
  left join campaign_items i on i.batch_id = b.id
  where cast(:campaign as bigint) is null or c.id = :campaign
  group by c.id
) c
order by id desc
