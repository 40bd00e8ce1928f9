-- A fork shares only the blocks before `first`.
update traces set fork_at = :first, shared_bytes = (
  select coalesce(sum(octet_length(rendered)), 0) from blocks where trace_id = :trace and index < :first)
where id = :trace and fork_at > :first
