create view freshness as
select
  v.name, v.as_of, extract(epoch from now() - v.as_of)::double precision as seconds_ago, v.seconds
from views v
join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm'
order by v.position;

comment on view freshness is
  'When each materialised view was filled last, by `weavegen refresh` or as it was made.';
comment on column freshness.name is 'The view.';
comment on column freshness.as_of is 'Its rows are as the tables were then.';
comment on column freshness.seconds_ago is 'How long ago that was.';
comment on column freshness.seconds is 'What the last refresh took.';
