-- Why nobody answers at the addresses of MCP servers: lists of tools that steps wait for, and the last call of each server
-- in the last :seconds.
with called as (
  select distinct on (request ->> 'server') answer from exchanges
  where request is not null and created_at > clock_timestamp() - make_interval(secs => :seconds)
  order by request ->> 'server', created_at desc
)
select s.failure as why from steps s join traces t on t.id = s.trace_id
where s.status = 'ready' and s.failure is not null and s.request ->> 'op' = 'tools' and t.status = 'running'
union
select answer ->> 'error' from called where answer ->> 'unreachable' is not null
