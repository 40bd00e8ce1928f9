-- Adds a row to the history of a request. at null: it happens now.
insert into request_changes (request_id, at, what, status, reason, changed)
values (
  :request, coalesce(cast(:at as timestamptz), clock_timestamp()), :what, :status, :reason, cast(:changed as jsonb)
)
