insert into corpus_segments (level, documents, words, ids, traces, jobs, indexes, goods, recorded, types, lengths)
values (:level, :documents, :words, :ids, :traces, :jobs, :indexes, :goods, :recorded, :types, :lengths) returning id
