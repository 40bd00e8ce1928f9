"""The auditor against damage of every kind: `make test-security`."""
