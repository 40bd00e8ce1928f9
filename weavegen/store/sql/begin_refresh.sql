-- Records when a view is refreshed. Its rows will be those of the snapshot of the refresh, which is taken after now().
-- Sums over ticks are as old as the rows of tick_stats.
update views set as_of = case name
  when 'tick_sums' then (select k.as_of from views k where k.name = 'tick_stats') else now()
  end
where name = :name
