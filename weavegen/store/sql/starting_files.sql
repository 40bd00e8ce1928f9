-- An archive of files with which /app begins.
select archive from starting_files where sha256 = :sha256
