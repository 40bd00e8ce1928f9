-- Labelled candidates. The view ranks all candidates of a block; only their labels are read from it, and only for
-- the blocks of the batch.
with labels as materialized (
  select candidate_id, label, because from kto_examples
  where trace_id = :trace and index = any(cast(:index as bigint[]))
    and candidate_id = any(cast(:candidate_id as bigint[]))
)
select v.*, l.label, l.because from candidate_values v join labels l on l.candidate_id = v.candidate_id
where v.trace_id = :trace and v.candidate_id = any(cast(:candidate_id as bigint[]))
