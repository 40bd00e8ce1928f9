update corpus_statistics set documents = :documents, spread = :spread, average_rarity = :average_idf
