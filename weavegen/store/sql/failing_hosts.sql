-- What hosts lack, one line for each: why steps that they gave back wait. An image that is being made is no fault.
select distinct on (split_part(s.failure, ': ', 1)) s.failure
from steps s join traces t on t.id = s.trace_id
where s.status = 'ready' and t.status = 'running'
  and s.failure like 'on %: %' and s.failure not like '%: images are being made: %'
order by split_part(s.failure, ': ', 1), s.send_after desc
