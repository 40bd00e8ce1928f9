-- Opens a tick. Its clock starts now, less the lag of the trace's clock. deadline null: it is in :budget seconds.
-- repeats: how many of the subagent's last ticks in a row, of :most_repeats at most, had the same actions and outcomes.
with latest as (
  select number, first_block from ticks
  where trace_id = :trace and subagent = :subagent and number > 0 order by number desc limit :most_repeats
), said as (
  select tick, string_agg(type || body, ' ' order by index) as text from blocks join latest on tick = number
  where trace_id = :trace and index >= (select min(first_block) from latest) and type in ('action', 'outcome')
  group by tick
), other as (
  select max(tick) as tick from said where text <> (select text from said order by tick desc limit 1)
)
insert into ticks (
  trace_id, number, subagent, caller, first_block, state, repeats, revision, paused_seconds, version, deadline, clock
)
select id, :number, :subagent, :caller, :first_block, cast(:state as jsonb),
  (select count(*) from said where tick > coalesce((select tick from other), 0)), :revision, :paused_seconds, :version,
  coalesce(cast(:deadline as double precision), round(extract(epoch from clock_timestamp()), 3) + :budget),
  round(extract(epoch from clock_timestamp()), 3) - lag
from traces where id = :trace
