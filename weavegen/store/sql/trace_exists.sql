-- Whether there is a trace.
select exists (select from traces where id = :trace)
