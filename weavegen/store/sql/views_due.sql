-- The first materialised view that is due: its rows are older than the limits, and something was written since.
select v.name from views v join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm' and v.as_of < now() - make_interval(secs => greatest(:least, :rest * v.seconds))
  and (exists (select from traces where status = 'running')
    or v.as_of < (select greatest(max(created_at), max(finished_at)) from traces))
order by v.position limit 1 for update of v skip locked
