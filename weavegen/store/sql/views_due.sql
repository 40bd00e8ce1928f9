-- The first materialised view that is due: its rows are older than the limits, and something was written since. The sums
-- over ticks are due when tick_stats, which they are made of, was refreshed after it was last summed; so tick_stats waits
-- also as long as their refresh asks for.
select v.name from views v join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm' and case v.name
  when 'tick_sums' then v.as_of < (select k.as_of from views k where k.name = 'tick_stats')
  else v.as_of < now() - make_interval(secs => greatest(:least, :rest * case v.name
      when 'tick_stats' then (select max(k.seconds) from views k where k.name in ('tick_stats', 'tick_sums'))
      else v.seconds
    end))
    and (exists (select from traces where status = 'running')
      or v.as_of < (select greatest(max(created_at), max(finished_at)) from traces))
  end
order by v.position limit 1 for update of v skip locked
