-- Stores a text that agents may read, unless it is stored.
insert into documents (sha256, text, characters, lines) values (:sha256, :text, :characters, :lines)
on conflict do nothing
