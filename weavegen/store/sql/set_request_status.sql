-- Gives a request another status.
update requests set status = :status, question = :question, result = :result where id = :request
