-- Who wrote the first blocks of a tick, with its run and its revision of the settings.
select revision, run, inherited from ticks where trace_id = :trace and number = :tick
