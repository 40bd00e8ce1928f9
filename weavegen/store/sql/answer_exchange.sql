-- Records the answer of a call, unless there is one.
update exchanges set answer = cast(:answer as jsonb) where step_id = :step and turn = :turn and answer is null
