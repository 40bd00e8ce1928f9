-- Records what a step had the worker do with a channel.
insert into exchanges (step_id, turn, "do", answer) values (:step, :turn, :do, cast(:answer as jsonb))
