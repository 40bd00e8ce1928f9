-- The keys in a part of the kept keys of a release.
select keys from release_keys where release_id = :release and kind = 'kept' and part = :part
