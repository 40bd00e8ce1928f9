-- Copies the results of evaluations of copied steps.
with {store/fork_copied_steps}
insert into evaluations (trace_id, step_id, tick, position, scope, title, value, error, protected, cause)
select :child, c.new, e.tick, e.position, e.scope, e.title, e.value, e.error,
  e.protected, e.cause
from evaluations e join copied c on c.old = e.step_id where e.trace_id = :parent order by e.id
