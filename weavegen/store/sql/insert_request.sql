-- Writes a request that no trace works on yet.
insert into requests (asked_by, objective, requirements, constraints)
values (:user, :objective, cast(:requirements as jsonb), cast(:constraints as jsonb))
returning id
