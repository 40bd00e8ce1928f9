-- Deletes the segments of a trace's index that hold a block from index :first on, and all postings from these on.
with gone as (delete from segments where trace_id = :trace and "end" > :first returning number)
delete from postings where trace_id = :trace and segment >= (select min(number) from gone)
