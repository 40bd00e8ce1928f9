-- The adapters that all servers of the pool are to serve.
select name, folder from adapters order by name
