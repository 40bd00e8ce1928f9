create view freshness as
select
  v.name, v.as_of, extract(epoch from now() - v.as_of)::double precision as seconds_ago, v.seconds
from views v
join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm'
order by v.position;

comment on view freshness is
  'When each materialised view was last filled: by the beat task, by `weavegen refresh`, or when it was made.';
comment on column freshness.name is 'The view.';
comment on column freshness.as_of is 'The rows show the tables at this time.';
comment on column freshness.seconds_ago is 'Seconds since then.';
comment on column freshness.seconds is 'Duration of the last refresh in seconds.';
