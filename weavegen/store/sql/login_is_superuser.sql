-- Whether the user of the session's login is a superuser.
select rolsuper from pg_roles where rolname = session_user
