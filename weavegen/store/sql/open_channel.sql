-- Opens a channel of a trace, unless it has one with that name.
insert into channels (trace_id, name) values (:trace, :name) on conflict do nothing
