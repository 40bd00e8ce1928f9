-- A set of packages.
select requirements, folder, versions from packages where sha256 = :sha256
