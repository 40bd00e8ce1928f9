insert into exchanges (step_id, turn, "do", answer, created_at)
select c.new, e.turn, e."do", e.answer, e.created_at from exchanges e join copied c on c.old = e.step_id
