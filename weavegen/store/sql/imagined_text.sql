-- The text of the candidate c, with its penalties n, if it is of a type that the model imagines: it writes comment lines,
-- which the block's body does not have. Null: of another type.
case when c.type in ('observation', 'error', 'outcome') then btrim(coalesce(n.rewritten, c.text), E'\n') end
