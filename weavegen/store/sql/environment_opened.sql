insert into environments (trace_id, host, pid, sandbox) values (:trace, :host, :pid, :sandbox)
on conflict (trace_id) where closed_at is null
do update set host = excluded.host, pid = excluded.pid, sandbox = excluded.sandbox
