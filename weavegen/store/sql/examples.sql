-- Examples.
select id, type, description, question, score, body from examples where id = any(cast(:ids as bigint[]))
