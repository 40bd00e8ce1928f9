-- A candidate.
select id from candidates where step_id = :step and position = :position
