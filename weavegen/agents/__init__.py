"""Agent programs by name. Each is a generator over the steps of steps.py."""

from weavegen.agents.program import Agent, Tick
from weavegen.agents.weave import weave

AGENTS: dict[str, Agent] = {"weave": weave}

__all__ = ["AGENTS", "Agent", "Tick"]
