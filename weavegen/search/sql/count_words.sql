insert into corpus_words as w (word, documents)
select * from unnest(cast(:words as text[]), cast(:documents as bigint[]))
on conflict (word) do update set documents = w.documents + excluded.documents returning word, documents
