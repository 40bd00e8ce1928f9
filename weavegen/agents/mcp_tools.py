"""The tools of MCP servers in agents' programs. The trace's first tick lists them; later ticks read its journal."""

import json
from collections.abc import Sequence
from typing import Any

from weavegen.agents.dialogue import Tool
from weavegen.agents.program import Part, Tick
from weavegen.box.mcp import named
from weavegen.kernel.steps import Executed, Note
from weavegen.trace.render import clean


def listing(t: Tick) -> Part[dict[str, Any]]:
    """By server {"tools": JSON list} or {"error": line}. Records the servers that can't be used, for people."""
    if t.number > 0 or not t.mcp:
        return t.listed or {}
    executed: Executed = yield t.execute("tools")
    listed: dict[str, Any] = executed.value if executed.error is None else {"all": {"error": executed.error.message}}
    for name, error in errors(listed).items():
        t.emit(Note(kind="MCP server unusable", detail=f"{name}: {error}"))
    return listed


def tools_in(listed: dict[str, Any]) -> list[Tool]:
    """The tools of a listing."""
    return [
        Tool(name, tool["description"], parameters=tool["parameters"], remote=(server, tool["name"]))
        for name, (server, tool) in named(listed).items()
    ]


def errors(listed: dict[str, Any]) -> dict[str, str]:
    """Why servers can't be used, by name."""
    return {name: listed[name]["error"] for name in sorted(listed) if "error" in listed[name]}


def unusable(listed: dict[str, Any]) -> str:
    """What the model reads about servers that can't be used; empty if there are none."""
    return "".join(f"\n\nThe MCP server {name} can't be used: {error}" for name, error in errors(listed).items())


def functions_text(tools: Sequence[Tool], listed: dict[str, Any]) -> str:
    """The functions for blocks, as comments after the file that implements the agent's API."""
    title = "Functions of MCP servers. They take arguments by name, return text, and raise RuntimeError."
    lines = [title, *(json.dumps(tool.schema()["function"], ensure_ascii=False) for tool in tools)]
    return clean("".join(f"\n# {line}" for line in (*lines, *unusable(listed).splitlines()) if line) + "\n")
