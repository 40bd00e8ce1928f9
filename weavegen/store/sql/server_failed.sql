-- Adds failed requests of one kind to a server. Processes only add, so their order does not matter. :since_ok is the
-- number of those after its last answer, and :age the seconds since the last one.
insert into server_health as h (url, kind, errors, errors_since_ok, last_error, last_error_at)
values (:url, :kind, :errors, :since_ok, :error, clock_timestamp() - make_interval(secs => :age))
on conflict (url, kind) do update set errors = h.errors + excluded.errors,
  errors_since_ok = h.errors_since_ok + excluded.errors_since_ok,
  last_error = excluded.last_error, last_error_at = greatest(h.last_error_at, excluded.last_error_at)
