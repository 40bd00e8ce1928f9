-- The result of the last step that executed code of a fork.
select result from steps
where trace_id = :child and kind = 'execute' and status = 'done' order by id desc limit 1
