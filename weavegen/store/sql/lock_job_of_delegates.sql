-- Locks the job of the traces that a job delegates to an agent.
select id from jobs where called_by = :caller and agent = :agent for update
