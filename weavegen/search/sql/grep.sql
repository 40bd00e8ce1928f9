select j.path, l.number, left(l.line, :max_chars) as line
from job_documents j join documents d on d.id = j.document_id,
  unnest(string_to_array(d.text, chr(10))) with ordinality l(line, number)
where j.job_id = :job and (:folder = '' or starts_with(j.path, :folder)) and l.line ~ :pattern
order by j.path collate "C", l.number limit :max_matches
