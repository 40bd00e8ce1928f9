-- All changes of a request, in order.
select at, what, status, reason, changed from request_changes where request_id = :request order by id
