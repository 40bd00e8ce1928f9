-- What the agent of the trace t returned: `result`, if it has text, else whether it was a success. For a game: won, drawn or
-- lost. Null: it returned neither.
case when jsonb_typeof(t.returned) = 'object' then coalesce(nullif(t.returned ->> 'result', ''),
  case t.returned -> 'success' when 'true' then 'success' when 'false' then 'no success' end) end
