-- Sets the counts of a trace: its blocks, their bytes, and how many are made of candidates.
update traces set blocks = :blocks, bytes = :bytes, written = :written where id = :trace
