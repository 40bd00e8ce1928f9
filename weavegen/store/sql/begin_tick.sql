-- Opens a tick. Its clock starts now, less the lag of the trace's clock. deadline null: it is in :budget seconds.
insert into ticks (
  trace_id, number, subagent, caller, first_block, state, repeats, revision, paused_seconds, version, deadline, clock
)
select id, :number, :subagent, :caller, :first_block, cast(:state as jsonb), :repeats, :revision, :paused_seconds, :version,
  coalesce(cast(:deadline as double precision), round(extract(epoch from clock_timestamp()), 3) + :budget),
  round(extract(epoch from clock_timestamp()), 3) - lag
from traces where id = :trace
