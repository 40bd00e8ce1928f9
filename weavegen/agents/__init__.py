"""Agent programs by name. Each is a generator over the steps of steps.py."""

from weavegen.agents.program import Agent, Tick
from weavegen.agents.weave import planning, weave

AGENTS: dict[str, Agent] = {"weave": weave, "planning": planning}

__all__ = ["AGENTS", "Agent", "Tick"]
