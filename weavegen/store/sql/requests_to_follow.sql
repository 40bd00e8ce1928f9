-- Requests whose status differs from what their traces say; locked. A request that is over is included where its
-- trace was retried; one that is open follows its own trace to its end first. Each part of the union has an index, so
-- that a sweep does not read all requests.
select r.id, t.id as trace, t.status, s.request ->> 'question' as question, s.ready_at as asked_at, t.started_at,
  t.finished_at, t.returned, t.failure, t.ended_because as because
from requests r
join lateral (
  select * from traces
  where id = r.trace_id or retry_of = r.trace_id and r.status in ('FAILED', 'CANCELED') order by id desc limit 1
) t on true
left join lateral (
  select request, ready_at from steps
  where trace_id = t.id and kind = 'await' and status in ('ready', 'running') order by id limit 1
) s on true
where r.id in (
    select id from requests where status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK')
    union
    select id from requests
    where status in ('FAILED', 'CANCELED')
      and trace_id in (select retry_of from traces where retry_of is not null)
  )
  and case
    when t.id <> r.trace_id then true
    when r.status = 'NOT_STARTED' then t.status <> 'queued'
    when r.status = 'IN_PROGRESS' then t.status <> 'running' or s.ready_at is not null
    when r.status = 'WAITING_FEEDBACK' then
      t.status <> 'running' or s.ready_at is null or left(s.request ->> 'question', 4000) <> r.question
    else false
  end
  and (r.id = :id or cast(:id as bigint) is null)
order by r.id for update of r
