-- Locks a request until the transaction ends.
select id from requests where id = :request for update
