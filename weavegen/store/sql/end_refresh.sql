-- Records how long a refresh took. Returns what the user sees of it.
update views set seconds = :seconds where name = :name
returning name as view, (select count(*) from "{name}") as rows, seconds
