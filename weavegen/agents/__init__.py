"""Agent programs by name. Each is a generator that yields the steps of kernel/steps.py."""

from weavegen.agents import funsearch, react, research
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
}

__all__ = ["AGENTS", "Agent", "Tick"]
