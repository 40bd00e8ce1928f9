-- Stores a part of the keys of a release.
insert into release_keys (release_id, kind, part, keys) values (:release, :kind, :part, cast(:keys as bigint[]))
