-- Locks jobs against other commands until the transaction ends. Workers can still read them.
select id, state, revision from jobs where id = any(cast(:jobs as bigint[])) order by id for no key update
