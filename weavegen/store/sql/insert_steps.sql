-- Adds steps to the journal, given as a JSON list of rows. The sweeper sends a step that nobody has claimed after
-- :resend seconds.
insert into steps (trace_id, tick, run, ordinal, kind, label, request, status, queue, send_after)
select :trace, :tick, :run, ordinal, kind, label, request, status, queue,
  clock_timestamp() + make_interval(secs => :resend)
from jsonb_to_recordset(cast(:steps as jsonb)) as s (
  ordinal bigint, kind text, label text, request jsonb, status text, queue text
)
order by ordinal
returning id, kind, queue, label
