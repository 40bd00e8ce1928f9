-- A page of a trace's blocks with the columns that make a Block.
select index, subagent, type, body, timestamp, time_remaining, block_size, bm25_query, title, tick_start,
  working_directory, compiles, ran, tags, question, answer, probability
from blocks where trace_id = :trace and index >= :first order by index limit :limit
