"""If this has worked, the list of free cells is shorter by two. A program can read that from the server."""
