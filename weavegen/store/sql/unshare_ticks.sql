-- Settings that an open tick inherited apply only before block `first`.
update ticks set inherited = (
  select jsonb_agg(jsonb_set(terms, '{until}', to_jsonb(least((terms ->> 'until')::bigint, :first)))
    order by place)
  from jsonb_array_elements(inherited) with ordinality as x(terms, place))
where trace_id = :trace and finished_at is null and jsonb_typeof(inherited) = 'array'
