-- Counts the values of a view, for the planner.
analyze "{name}"
