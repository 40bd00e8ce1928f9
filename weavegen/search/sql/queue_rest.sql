-- Queues the blocks of list_blocks.sql from place :done on. Locked: a block that is dropped meanwhile is left out.
insert into corpus_queue select i.id from indexed_anew i join blocks b using (id)
where place >= :done for key share of b on conflict do nothing
