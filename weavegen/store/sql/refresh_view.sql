-- Refreshes a materialised view.
refresh materialized view concurrently "{name}"
