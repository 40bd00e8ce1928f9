-- The result of the last step that a fork's code was executed in.
select result from steps
where trace_id = :child and kind = 'execute' and status = 'done' order by id desc limit 1
