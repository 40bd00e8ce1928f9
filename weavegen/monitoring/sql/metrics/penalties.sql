-- counter penalised_candidates: Candidates by the penalty that linting gave. As of the last refresh.
select penalty, sum(penalised)::bigint as penalised_candidates from penalty_stats group by penalty order by penalty
