-- Stores a set of packages, unless it is stored.
insert into packages (sha256, requirements, folder, versions)
values (:sha256, :requirements, :folder, cast(:versions as jsonb))
on conflict do nothing
