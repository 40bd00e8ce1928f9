-- Records the reward of a tick.
update ticks set reward = :reward, protected = :protected, not_evaluated = :not_evaluated
where trace_id = :trace and number = :tick
