-- The SQL of the search index. Each query begins with a line `-- name: NAME`.

-- name: corpus_parts
-- The segments that queries read, the oldest blocks first (a merged segment is older than one that is not), and
-- the newest blocks of the queue.
select false as queued, level, id, documents from corpus_segments where retired_at is null
union all
select true, 0, block_id, 1 from (select block_id from corpus_queue order by block_id desc limit :max_queued) q
order by queued, level desc, id

-- name: corpus_postings
-- Executed by psycopg itself.
select p.segment, p.word, p.documents, p.data
from unnest(%s::bigint[], %s::text[]) w(segment, word) join corpus_postings p using (segment, word)

-- name: postings_of_segments
-- Executed by psycopg itself.
select word, segment, documents, data from corpus_postings where segment = any(%s) order by word, segment

-- name: blocks
-- The fields of documents.Document.
select b.id, b.trace_id, t.job_id, b.index,
  coalesce(case when b.compiles and b.ran is not false then b.score end, 'NaN') as good,
  extract(epoch from b.created_at)::double precision as recorded, b.type, b.body
from blocks b join traces t on t.id = b.trace_id where b.id = any(:ids) order by b.id

-- name: examples
-- The same fields; an example belongs to no trace.
select id, 0 as trace_id, 0 as job_id, 0 as index, 'NaN'::double precision as good, 0.0::double precision as recorded,
  type, body
from examples where id = any(:ids) order by id

-- name: texts
-- The fields of user_search.FoundText, without the score.
select b.id as block, null::bigint as example, t.job_id, b.trace_id, b.index, b.created_at, b.type, b.body
from blocks b join traces t on t.id = b.trace_id where b.id = any(:blocks)
union all
select null, id, null, null, null, null, type, body from examples where id = any(:examples)

-- name: take_from_queue
delete from corpus_queue where block_id = any(array(
  select block_id from corpus_queue order by block_id limit :size
)) returning block_id

-- name: count_words
insert into corpus_words as w (word, documents)
select * from unnest(cast(:words as text[]), cast(:documents as bigint[]))
on conflict (word) do update set documents = w.documents + excluded.documents returning word, documents

-- name: set_statistics
update corpus_statistics set documents = :documents, spread = :spread, average_rarity = :average_idf

-- name: mergeable
-- The lowest level that has enough segments for a merge.
select level, array_agg(id order by id) as segments from corpus_segments
where retired_at is null and level < :last group by level having count(*) >= :factor order by level limit 1

-- name: delete_retired
delete from corpus_segments where retired_at < clock_timestamp() - make_interval(secs => :kept) returning id

-- name: list_blocks
-- All blocks that the index takes, for `weavegen reindex`.
create temporary table indexed_anew on commit drop as
select b.id, row_number() over (order by b.id) - 1 as place from blocks b join traces t on t.id = b.trace_id
where b.type = any(:types) and b.index >= coalesce(t.fork_at, 0)

-- name: unqueue
delete from corpus_queue where block_id in (select id from indexed_anew where place < :done)

-- name: queue_rest
insert into corpus_queue select i.id from indexed_anew i join blocks b using (id)
where place >= :done on conflict do nothing

-- name: trace_segments
select count(*) as segments, max("end") as "end", string_agg(documents, '' order by number) as documents
from segments where trace_id = :trace and "end" <= :before

-- name: trace_texts
-- What a query over one trace reads as text: blocks that no segment has, and the examples.
select id, type, body, false as example from blocks
where trace_id = :trace and index >= :first and index < :before and type = any(:types)
union all
select id, type, body, true from examples order by example, id

-- name: trace_postings
select word, string_agg(blocks, '' order by segment) as blocks from postings
where trace_id = :trace and word = any(:words) and segment < :segments group by word

-- name: trace_frequencies
select word, documents from unnest(cast(:words as text[])) as w(word) cross join lateral (
  select documents from postings
  where trace_id = :trace and postings.word = w.word and segment < :segments order by segment desc limit 1
) p

-- name: trace_histogram
select spread from segments where trace_id = :trace and number = :segments - 1

-- name: insert_trace_postings
insert into postings (trace_id, segment, word, documents, blocks)
select :trace, :segment, *
from unnest(cast(:words as text[]), cast(:documents as bigint[]), cast(:blocks as bytea[]))

-- name: grep
select j.path, l.number, left(l.line, :max_chars) as line
from job_documents j join documents d on d.id = j.document_id,
  unnest(string_to_array(d.text, chr(10))) with ordinality l(line, number)
where j.job_id = :job and (:folder = '' or starts_with(j.path, :folder)) and l.line ~ :pattern
order by j.path collate "C", l.number limit :max_matches
