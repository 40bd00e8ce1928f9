-- Writes a release.
insert into releases (
  name, format, condition, row_limit, options, splits, shard_bytes, threshold, key_width, rows, facts, version,
  code_sha256, manifest_sha256, files
)
values (
  :name, :format, :condition, :row_limit, cast(:options as jsonb), cast(:splits as jsonb), :shard_bytes, :threshold,
  :key_width, :rows, cast(:facts as jsonb), :version, :code_sha256, :manifest_sha256, cast(:files as jsonb)
)
returning id
