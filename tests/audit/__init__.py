"""The auditor with every kind of damage. Run `make test-security`."""
