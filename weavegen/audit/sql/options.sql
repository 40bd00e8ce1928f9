-- The evaluator's answers about the options of a trace, which are blocks without a candidate.
select s.tick, a.question, a.yes, a.no from scores a join steps s on s.id = a.step_id
join ticks k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
where a.trace_id = :id and a.stage = 'option'
