-- An exchange that was done before.
select "do", request, answer from exchanges where step_id = :step and turn = :turn
