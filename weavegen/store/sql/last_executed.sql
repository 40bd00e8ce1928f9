select result from steps
where trace_id = :child and kind = 'execute' and status = 'done' order by id desc limit 1
