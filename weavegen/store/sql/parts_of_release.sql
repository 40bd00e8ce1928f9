-- The parts of the kept keys of a release, in order.
select part from release_keys where release_id = :release and kind = 'kept' order by part
