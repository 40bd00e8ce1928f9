-- Drops a view.
drop {kind} "{name}"
