-- The result of the trace t, in one line: fields of forms hold no line ends, and addresses are stripped. Null: it has none.
nullif(btrim(regexp_replace({store/trace_result}, '\s+', ' ', 'g')), '')
