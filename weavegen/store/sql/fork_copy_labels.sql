-- Copies the assertions of copied steps.
with {store/fork_copied_steps}
insert into grounded_labels (trace_id, step_id, position, question, answer)
select :child, c.new, l.position, l.question, l.answer
from grounded_labels l join copied c on c.old = l.step_id where l.trace_id = :parent order by l.id
