-- gauge view_age_seconds: Time since the last refresh of a materialised view.
-- gauge view_refresh_seconds: Duration of that refresh.
select name as view, seconds_ago as view_age_seconds, seconds as view_refresh_seconds from freshness
