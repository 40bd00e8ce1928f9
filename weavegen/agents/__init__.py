"""Agent programs by name. Each is a generator that yields the steps of kernel/steps.py."""

from weavegen.agents import funsearch, harbor, react, research
from weavegen.agents.program import Agent, Tick
from weavegen.agents.toolsmith import Task as Request
from weavegen.agents.toolsmith import toolsmith
from weavegen.agents.weave import planning, weave

AGENTS: dict[str, Agent] = {
    "weave": Agent(weave),
    "planning": Agent(planning),
    "react": Agent(react.react, react.Task),
    "research": Agent(research.research, research.Task, bootstraps=False),
    "funsearch": Agent(funsearch.funsearch, funsearch.Task, bootstraps=False),
    "toolsmith": Agent(toolsmith, Request, bootstraps=False),
    "nop": Agent(harbor.nop, harbor.Task, bootstraps=False),
    "oracle": Agent(harbor.oracle, harbor.Task, bootstraps=False),
}

__all__ = ["AGENTS", "Agent", "Tick"]
