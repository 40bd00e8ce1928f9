-- Adds a line to the history of a trace.
insert into events (trace_id, kind, detail) values (:trace, :kind, :detail)
