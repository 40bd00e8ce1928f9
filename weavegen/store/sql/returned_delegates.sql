-- Steps that wait for traces which are over by now. error: why a trace ended before its work was done; null: it was
-- done. A trace with an error may have returned its best so far.
select s.id, t.id as trace, t.returned, case
    when t.status = 'failed' then t.failure
    when t.status = 'cancelled' then 'it was cancelled'
    when t.ended_because <> 'returned' then 'it had spent its budget of ' || t.ended_because || ' before it returned'
  end as error
from steps s join traces t on t.called_by = s.id
where s.kind = 'delegate' and s.status = 'running' and t.status in ('ended', 'failed', 'cancelled')
