-- Records that an environment was started. A second record of the same trace replaces the first.
insert into environments (trace_id, host, pid, sandbox, steps_done)
select :trace, :host, :pid, :sandbox, count(*)
from steps where trace_id = :trace and kind = 'execute' and status = 'done'
on conflict (trace_id) where closed_at is null
do update set host = excluded.host, pid = excluded.pid, sandbox = excluded.sandbox
