-- Empties the failures of a campaign's items, and lets their batches wait again.
with again as (
  update campaign_items i set failure = null
  from campaign_batches b join campaigns c on c.id = b.campaign_id
  where b.id = i.batch_id and c.name = :name and b.status = 'done' and i.failure is not null
  returning i.batch_id
),
batches as (
  update campaign_batches
  set status = 'waiting', claims = 0, send_after = clock_timestamp(), finished_at = null
  where id in (select batch_id from again)
)
select count(*) from again
