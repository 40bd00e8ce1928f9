-- Writes a segment of a trace's index.
insert into segments (trace_id, number, "end", documents, spread)
values (:trace_id, :number, :end, :documents, :spread)
