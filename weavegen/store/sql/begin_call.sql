-- Records a call of a tool, unless it is recorded.
insert into exchanges (step_id, turn, "do", request) values (:step, :turn, 'tool', cast(:request as jsonb))
on conflict do nothing
