"""What is made of the corpus. Run `make test-corpus`."""
