-- proves: a step's columns fit its status: worker, lease, claims, result, failure and end
-- subject: steps
select s.trace_id, 'step ' || s.id, format('it is %s, but %s', s.status, case
    when s.status in ('done', 'failed') and s.finished_at is null then 'has no finished_at'
    when s.status in ('done', 'failed') and s.lease_until is not null then 'has a lease'
    when s.status = 'done' and s.failure is not null then 'has a failure'
    when s.status = 'failed' and s.failure is null then 'has no failure'
    when s.status <> 'done' and s.result is not null then 'has a result'
    when s.status not in ('done', 'failed') and s.finished_at is not null then 'has a finished_at'
    when s.kind = any(:waits) and s.status in ('ready', 'failed') or s.kind = any(:waits)
      and (s.claims > 0 or s.lease_until is not null) then 'no worker can claim a step of this kind'
    when s.status = 'void' then 'its run was not replaced'
    when s.lease_until is null and s.status = 'running' then 'has no lease, so that no worker can take it over'
    else 'no worker ever claimed it'
  end)
from steps s join traces t on t.id = s.trace_id
left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
where {scope} and case s.status
  when 'done' then s.finished_at is null or s.lease_until is not null or s.failure is not null
    or (s.kind = any(:waits)) <> (s.claims < 1)
  when 'failed' then s.finished_at is null or s.lease_until is not null or s.failure is null
    or s.failure_kind is null or s.result is not null or s.claims < 1 or s.kind = any(:waits)
  when 'running' then s.result is not null or s.finished_at is not null
    or case when s.kind = any(:waits) then s.lease_until is not null or s.claims > 0
      else s.lease_until is null or s.claims < 1 or s.worker is null or s.claimed_at is null end
  when 'ready' then s.result is not null or s.finished_at is not null or s.kind = any(:waits)
  else s.result is not null or s.finished_at is not null or t.status = 'running' and s.run >= k.run
end
order by 1, s.id
