"""A SIMULATED vLLM: its API with scripted texts, for load and fault tests. The texts are worthless as data."""

from weavegen.config import SIMULATED_MODEL as MODEL

SERVER = "weavegen-sim (a simulation, no language model)"
"""The Server header of every response."""

__all__ = ["MODEL", "SERVER"]
