-- As trace_success, where the traces of a query are compared: also null for a task without evaluations in any of its traces.
case when bool_or(exists (select from evaluations e where e.trace_id = t.id and e.scope = 'task'))
  over (partition by t.bootstrap_id) then {store/trace_success} end
