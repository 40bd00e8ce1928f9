-- Whether no trace is a retry of the trace t.
not exists (select from traces r where r.retry_of = t.id)
