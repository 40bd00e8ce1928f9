-- Records a block.
insert into blocks (
  trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, block_size, bm25_query, title,
  tick_start, working_directory, compiles, question, answer, probability, ran, exception, tags, score, candidate_id,
  executed_by, toolset_id
)
values (
  :trace, :index, :tick, :subagent, :type, :body, :rendered, :timestamp, :time_remaining, :block_size, :bm25_query,
  :title, :tick_start, :working_directory, :compiles, :question, :answer, :probability, :ran, :exception,
  cast(:tags as text[]), :score, :candidate, :executed_by, :toolset
)
