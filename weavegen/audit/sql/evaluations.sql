-- The evaluations of the newest run of each tick of a trace.
select e.tick, e.title, e.value, e.error, e.protected, e.cause from evaluations e join steps s on s.id = e.step_id
join ticks k on k.trace_id = e.trace_id and k.number = e.tick and k.run = s.run
where e.trace_id = :id order by e.tick, e.position
