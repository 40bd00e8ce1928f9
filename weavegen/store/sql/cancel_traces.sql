-- Cancels queued and running traces, and withdraws their steps. which: a condition on traces.
with cancelled as (
  update traces set status = 'cancelled', finished_at = clock_timestamp()
  where {which} and status in ('queued', 'running')
  returning id
),
withdrawn as (
  update steps set status = 'void'
  where status in ('ready', 'running') and trace_id in (select id from cancelled)
)
select count(*) from cancelled
