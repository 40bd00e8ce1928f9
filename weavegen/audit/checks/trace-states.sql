-- proves: a trace's columns fit its status: queued, running, ended, failed or cancelled
-- subject: traces
select t.id, 'its row', format('it is %s, but %s', t.status, case
    when t.status = 'queued' then 'has already started'
    when (t.finished_at is null) <> (t.status = 'running') then 'finished_at is '
      || case when t.finished_at is null then 'missing' else 'set' end
    when t.status <> 'cancelled' and t.started_at is null then 'started_at is missing'
    when t.status = 'ended' and t.ended_because is null then 'ended_because is missing'
    when t.status = 'failed' and (t.failure is null or t.failure_kind is null)
      then 'failure or failure_kind is missing'
    when t.status <> 'ended' and t.ended_because is not null then 'ended_because is set'
    else 'failure is set'
  end)
from traces t
where {scope} and case t.status
  when 'queued' then t.started_at is not null or t.finished_at is not null or t.failure is not null
    or t.ended_because is not null or exists (select from ticks k where k.trace_id = t.id)
    or exists (select from steps s where s.trace_id = t.id)
    or exists (select from blocks b where b.trace_id = t.id)
  when 'running' then t.started_at is null or t.finished_at is not null or t.failure is not null
    or t.ended_because is not null
  when 'ended' then t.started_at is null or t.finished_at is null
    or t.ended_because is null or t.failure is not null or t.failure_kind is not null
  when 'failed' then t.started_at is null or t.finished_at is null
    or t.failure is null or t.failure_kind is null or t.ended_because is not null
  else t.finished_at is null or t.ended_because is not null or t.failure is not null
end
order by 1
