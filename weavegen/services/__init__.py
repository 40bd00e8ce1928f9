"""What weavegen runs on, started on this machine: PostgreSQL, Redis, a small model, workers."""
