-- The result of the newest evaluations of a trace's main subagent before a step, except those that the infrastructure
-- left without a verdict.
select result from steps
where trace_id = :trace and id < :step and kind = 'execute' and status = 'done' and request ->> 'op' = 'evaluate'
  and coalesce(request ->> 'subagent', 'main') = 'main'
  and not result @> '{"evaluations": [{"cause": "infrastructure"}]}'
order by id desc limit 1
