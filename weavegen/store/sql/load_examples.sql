-- Stores the examples that are new, given as a JSON list.
insert into examples (sha256, type, description, question, score, body)
select sha256, type, description, question, score, body
from jsonb_to_recordset(cast(:examples as jsonb)) as e (
  sha256 text, type text, description text, question text, score double precision, body text
)
on conflict do nothing
