"""Reads files that name MCP servers, in the form that other clients read too, and checks them."""

import re
from pathlib import Path
from typing import Any

import msgspec

from weavegen.errors import UsageError
from weavegen.kernel.mcp import McpServer
from weavegen.kernel.settings import check_json
from weavegen.variables import VARIABLE, lacks

AGENTS = ("weave", "react", "toolsmith")  # agents whose models can have the tools of MCP servers
TYPES = (None, "stdio", "http", "streamable-http", "streamable_http", "streamableHttp")
FORM = '{"mcpServers": {"time": {"command": "mcp-server-time"}, "web": {"url": "https://..."}}}'
SECRET = re.compile(r"authorization|cookie|token|secret|passw|credential|api[-_]?key", re.IGNORECASE)
"""Names of headers and variables whose values must not be stored in the database."""


class File(msgspec.Struct):
    servers: dict[str, McpServer] = msgspec.field(name="mcpServers")


def servers_of(text: str, path: str | Path, agent: str) -> dict[str, Any]:
    """The servers of a file by name, as JSON values. Raises UsageError."""
    if agent not in AGENTS:
        raise UsageError(f"{agent} takes no tools of MCP servers: give --agent, one of {', '.join(AGENTS)}")
    try:
        servers = msgspec.json.decode(text, type=File).servers
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}; the form is {FORM}") from None
    if not servers:
        raise UsageError(f"{path} names no server; the form is {FORM}")
    for name, server in servers.items():
        if problem := problem_of(name, server):
            raise UsageError(f"{path}: the server {name!r:.80} {problem}")
    values: dict[str, Any] = msgspec.to_builtins(servers)
    check_json(values, str(path))
    return values


def problem_of(name: str, server: McpServer) -> str | None:
    """What is wrong with a server; None: nothing."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", name):
        return "needs a name of at most 40 letters, digits, dots, hyphens and underscores"
    if server.type not in TYPES or bool(server.command) == bool(server.url):
        return "must have a command (stdio) or a url (streamable HTTP), not both; other transports are not supported"
    if server.url and not re.match(r"https?://|\$\{", server.url):
        return "has a url that begins neither with http:// nor with https://"
    if reason := next(filter(None, map(lacks, server.texts())), None):
        return reason
    for key, value in (server.env | server.headers).items():
        if SECRET.search(key) and not VARIABLE.search(value):
            return f"has a secret, {key}, in the file: write ${{NAME}} for a variable of the execute workers"
    return None
