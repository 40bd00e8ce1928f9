-- The actions and outcomes of a subagent's latest ticks, a text for each tick, the newest first.
with latest as (
  select number, first_block from ticks
  where trace_id = :trace and subagent = :subagent and number > 0 order by number desc limit :most
)
select string_agg(type || body, ' ' order by index) from blocks join latest on tick = number
where trace_id = :trace and index >= (select min(first_block) from latest) and type in ('action', 'outcome')
group by tick order by tick desc
