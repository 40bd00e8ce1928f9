-- The first block after :after of a kind, or with :back the last one before it. error: it failed, is not legal Python, or
-- is an error block that follows no such block. low: the evaluator leans to no. divergence: the evaluator's probability
-- is at least 0.5 away from the outcome; both are those of review.sql.
select b.index from blocks b left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
where b.trace_id = :trace
  and case when :back then b.index < :after else b.index > :after end
  and case :kind
    when 'error' then b.ran is false or not b.compiles or b.type = 'error' and not exists (
      select from blocks p
      where p.trace_id = b.trace_id and p.index = b.index - 1 and (p.ran is false or not p.compiles)
    )
    when 'backtrack' then b.type = 'backtrack'
    when 'low' then b.score < 0
    when 'divergence' then b.ran is not null and abs(
      case when b.score is not null then 1 / (1 + exp(-greatest(-50, least(50, b.score)))) end
      - case when not b.ran then 0 when b.type = 'action' then coalesce(least(1, 2 * k.reward), 1) else 1 end
    ) >= 0.5
  end
order by case when :back then -b.index else b.index end limit 1
