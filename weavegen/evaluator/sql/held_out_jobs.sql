-- The jobs of evaluations, by the names that `weavegen eval` and `weavegen improve` give them.
select id from jobs where name ~ '^(eval|improve-[0-9a-f]{6} round \d+:) (selected|unaided)$' order by id
