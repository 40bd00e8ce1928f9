-- Successful ones first.
select trace_id, trace_status, success, messages, replies, reply_tokens, left(task, :excerpt) as task,
  left(final_response, :excerpt) as final_response, left(error, :excerpt) as error
from (
  (select * from conversations where job_id = :job and success
    order by reply_tokens, trace_id limit :examples)
  union all
  (select * from conversations where job_id = :job and success is not true
    order by trace_status = 'failed' desc, success nulls last, reply_tokens desc, trace_id limit :examples)
) shown
order by success is not true, trace_id
