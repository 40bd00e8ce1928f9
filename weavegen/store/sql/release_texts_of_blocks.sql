-- What the model wrote in a trace, by block.
select array[id] as key, reward, body as text from blocks where trace_id = :trace
