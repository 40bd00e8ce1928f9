-- Segments of the corpus index, in order.
select * from corpus_segments where id = any(:segments) order by id
