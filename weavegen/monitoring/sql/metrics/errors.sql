-- counter errors: Errors by stage. As of the last refresh.
select stage, sum(errors)::bigint as errors from errors_by_stage group by stage order by stage
