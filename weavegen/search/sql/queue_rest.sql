insert into corpus_queue select i.id from indexed_anew i join blocks b using (id)
where place >= :done on conflict do nothing
