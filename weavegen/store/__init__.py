"""PostgreSQL: tables, and the queries on them."""
