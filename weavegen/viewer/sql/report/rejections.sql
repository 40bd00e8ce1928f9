select reason, count(*) as candidates, avg(score) as mean_score, sum(tokens)::bigint as tokens
from (
  select score, tokens,
    case
      when depth is not null then 'a node of a search tree'
      when finish_reason = 'length' then 'cut off at its most tokens'
      when not compiles then 'no legal Python'
      when penalty > 0 then 'penalised by linting'
      when score is null then 'not scored'
      else 'sound, another was chosen'
    end as reason
  from candidate_values where job_id = :job and block_id is null
) lost
group by reason order by candidates desc
