-- proves: environments that were rebuilt and in which repeated steps had other results than before
-- subject: events
-- findings: remarks
select t.id, 'event ' || e.id, e.detail from events e join traces t on t.id = e.trace_id
where {scope} and e.kind = 'environment rebuilt'
  and (e.detail like '%came out otherwise%' or e.detail like '%came out differently%')
order by 1, e.id
