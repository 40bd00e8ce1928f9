-- The rubrics of the scores of traces.
select distinct rubric from scores where trace_id = any(cast(:traces as bigint[]))
