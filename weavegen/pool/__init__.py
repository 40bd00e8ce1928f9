"""The pool of model servers: clients, routing, metering."""
