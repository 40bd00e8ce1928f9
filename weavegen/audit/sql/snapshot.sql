-- The first statement of a transaction that only reads, and reads one state of the database.
set transaction isolation level repeatable read, read only
