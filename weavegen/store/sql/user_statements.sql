-- Constraints, answers and reasons that a user gave in requests other than one, the newest first.
select text from (
  select r.id, 0 as n, c.text from requests r cross join jsonb_array_elements_text(r.constraints) c(text)
  where r.asked_by = :user
  union all
  select r.id, c.id, c.reason from requests r join request_changes c on c.request_id = r.id
  where r.asked_by = :user and c.what in ('answered', 'updated', 'canceled')
) statements where id is distinct from cast(:other as bigint)
group by id, n, text order by id desc, n limit 2000
