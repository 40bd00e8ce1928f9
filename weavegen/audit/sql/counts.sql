-- How many rows there are of each subject that a check may name.
select * from (
  select count(*) as traces, count(*) filter (where t.status = 'running') as running_traces
  from traces t where {scope}
) traces cross join (
  select count(*) as ticks from ticks k join traces t on t.id = k.trace_id where {scope}
) ticks cross join (
  select count(*) as blocks, count(*) filter (where b.type = 'assistant') as replies
  from blocks b join traces t on t.id = b.trace_id where {scope}
) blocks cross join (
  select count(*) as candidates from candidates c join traces t on t.id = c.trace_id where {scope}
) candidates cross join (
  select count(*) as steps,
    count(*) filter (where s.status in ('ready', 'running')) as open_steps,
    count(*) filter (where s.kind = 'sample') as samples,
    count(*) filter (where s.kind = 'score') as scorings,
    count(*) filter (where s.kind = 'execute') as executions,
    count(*) filter (where s.kind = 'retrieve') as retrievals,
    count(*) filter (where s.kind = 'work') as calls,
    count(*) filter (where s.kind = 'delegate') as delegations
  from steps s join traces t on t.id = s.trace_id where {scope}
) steps cross join (
  select count(*) as programs from programs p join traces t on t.id = p.trace_id where {scope}
) programs cross join (
  select count(*) as subagents from subagents a join traces t on t.id = a.trace_id where {scope}
) subagents cross join (
  select count(*) as events from events e join traces t on t.id = e.trace_id where {scope}
) events cross join (
  select count(*) as channels from channels c join traces t on t.id = c.trace_id where {scope}
) channels cross join (
  select count(*) as environments from environments e join traces t on t.id = e.trace_id where {scope}
) environments
