"""A SIMULATED vLLM: the server's API, scripted texts. For load and fault tests, not for data worth keeping."""

MODEL = "weavegen-sim"
"""The only model that the simulation lists."""

SERVER = "weavegen-sim (a simulation, no language model)"
"""The Server header of every response."""
