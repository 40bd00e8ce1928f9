-- Copies what copied steps had the worker do.
with {store/fork_copied_steps}
insert into exchanges (step_id, turn, "do", request, answer, created_at)
select c.new, e.turn, e."do", e.request, e.answer, e.created_at from exchanges e join copied c on c.old = e.step_id
