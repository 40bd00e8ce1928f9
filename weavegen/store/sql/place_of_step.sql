-- The tick and the ordinal of a step: its place in its trace, which is the same in forks.
select tick, ordinal from steps where id = :step
