-- Records when a view is refreshed. Its rows will be those of the snapshot of the refresh, which is taken after now().
update views set as_of = now() where name = :name
