-- proves: a fork's shared blocks equal those of the forked trace, unless that trace has restarted a tick since
-- subject: blocks
select t.id, 'block ' || b.index, case
    when o.id is null then format('trace %s has no such block', t.fork_of)
    else format('it differs from the same block of trace %s', t.fork_of)
  end
from traces t join blocks b on b.trace_id = t.id and b.index < t.fork_at
left join blocks o on o.trace_id = t.fork_of and o.index = b.index
where {scope} and t.fork_of is not null and (o.id is null
    or (o.rendered, o.tick, o.created_at) <> (b.rendered, b.tick, b.created_at))
  and not exists (select from events e where e.trace_id = t.fork_of
    and e.kind = 'tick restarted' and e.at > t.started_at)
order by 1, b.index
