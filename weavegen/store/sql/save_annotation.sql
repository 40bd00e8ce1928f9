-- Writes a person's annotation, or with :empty removes it: of the candidate, else of the block with this index, else of
-- the trace. A block that a candidate became is annotated by the candidate. Gives what it is about; no row: it is not there.
with about as (
  select coalesce(c.trace_id, t.id) as trace_id, case when c.id is null then b.id end as block_id, c.id as candidate_id
  from traces t
  left join blocks b on b.trace_id = t.id and b.index = cast(:index as bigint)
  left join candidates c on c.id = coalesce(cast(:candidate as bigint), b.candidate_id)
  where t.id = :trace and (cast(:index as bigint) is null or b.id is not null)
    and (cast(:candidate as bigint) is null or c.id is not null)
), removed as (
  delete from annotations a using about
  where cast(:empty as boolean) and a.trace_id = about.trace_id and a.author = :author
    and coalesce(a.block_id, 0) = coalesce(about.block_id, 0)
    and coalesce(a.candidate_id, 0) = coalesce(about.candidate_id, 0)
), saved as (
  insert into annotations (trace_id, block_id, candidate_id, author, verdict, labels, note)
  select trace_id, block_id, candidate_id, :author, :verdict, :labels, :note from about where not cast(:empty as boolean)
  on conflict (trace_id, author, coalesce(block_id, 0), coalesce(candidate_id, 0)) do update
  set verdict = excluded.verdict, labels = excluded.labels, note = excluded.note, changed_at = now()
)
select * from about
