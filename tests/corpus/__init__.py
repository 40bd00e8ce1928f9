"""What is made of the corpus: `make test-corpus`."""
