-- All releases, newest first.
select name as release, format, rows, created_at, version, manifest_sha256, condition from releases order by id desc
