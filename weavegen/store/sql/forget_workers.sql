-- Deletes the rows of workers that have ended.
delete from workers where process = any(:processes)
