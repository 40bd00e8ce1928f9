-- proves: traces whose code ran without isolation (WEAVEGEN_SANDBOX=none)
-- subject: events
-- findings: remarks
select t.id, 'event ' || e.id, 'not isolated: ' || e.detail
from events e join traces t on t.id = e.trace_id
where {scope} and e.kind = 'not isolated' order by 1, e.id
