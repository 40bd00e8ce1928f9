-- Claims a batch of an active campaign.
update campaign_batches b set status = 'running', claims = b.claims + 1, worker = :worker,
  claimed_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => :lease)
from campaigns c
where b.id = :batch and b.status in ('waiting', 'sent') and c.id = b.campaign_id and c.state = 'active'
returning b.id, b.trace_id, b.claims, c.rubric, c.model
