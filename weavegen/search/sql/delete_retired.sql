delete from corpus_segments where retired_at < clock_timestamp() - make_interval(secs => :kept) returning id
