-- Stores a program that a search evaluated.
insert into programs (
  trace_id, number, tick, generation, island, parents, source, score, signature, error, candidate_id
)
values (
  :trace, :number, :tick, :generation, :island, cast(:parents as bigint[]), :source, :score,
  cast(:signature as double precision[]), :error, :candidate
)
