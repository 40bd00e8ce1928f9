-- Steps that wait for traces which are over by now.
select s.id, t.id as trace, t.status, t.returned, t.ended_because, t.failure
from steps s join traces t on t.called_by = s.id
where s.kind = 'delegate' and s.status = 'running' and t.status in ('ended', 'failed', 'cancelled')
