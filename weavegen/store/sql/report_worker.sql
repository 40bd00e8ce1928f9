-- Records that a worker runs, in place of the worker that had its node on its host before.
with replaced as (
  delete from workers
  where process <> :process
    and (node = :node and split_part(process, ':', 1) = split_part(:process, ':', 1)
      or seen_at < clock_timestamp() - make_interval(secs => :forgotten))
)
insert into workers (process, node, queues, version, settings, seen_at)
values (:process, :node, :queues, :version, cast(:settings as jsonb), clock_timestamp())
on conflict (process) do update
set node = excluded.node, queues = excluded.queues, version = excluded.version, settings = excluded.settings,
  seen_at = excluded.seen_at
