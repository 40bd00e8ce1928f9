"""A SIMULATED vLLM: the server's API, scripted texts. For load and fault tests, not for data worth keeping."""

from weavegen.config import SIMULATED_MODEL as MODEL

SERVER = "weavegen-sim (a simulation, no language model)"
"""The Server header of every response."""

__all__ = ["MODEL", "SERVER"]
