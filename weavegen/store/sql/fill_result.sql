-- Gives a copied step its result, which had been emptied.
update steps set result = cast(:result as jsonb) where id = :step
