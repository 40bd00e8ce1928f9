-- Marks waiting batches as sent, the oldest campaign first, until `in_flight` are sent or running.
-- A time of send_after beyond the longest delay is void: the database's clock was set back.
with free as (
  select greatest(0, :in_flight - count(*)) as n from campaign_batches where status in ('sent', 'running')
)
update campaign_batches b
set status = 'sent', send_after = clock_timestamp() + make_interval(secs => :resend)
from campaigns c
where c.id = b.campaign_id and b.id in (
  select w.id from campaign_batches w join campaigns a on a.id = w.campaign_id and a.state = 'active'
  where w.status = 'waiting'
    and w.send_after not between clock_timestamp() and clock_timestamp() + make_interval(secs => :never)
  order by w.id limit (select n from free)
)
returning b.id, 'campaign ' || c.name || ' trace ' || b.trace_id as label
