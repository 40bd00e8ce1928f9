-- Whether the table of views is there: a migration makes it.
select to_regclass('views') is not null
