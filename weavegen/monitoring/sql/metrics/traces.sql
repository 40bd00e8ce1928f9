-- gauge traces: Traces by status.
select status, count(t.id) as traces
from unnest(array['queued', 'running', 'ended', 'failed', 'cancelled']) status left join traces t using (status)
group by status
