"""MCP servers, asked from the box. One with a command runs in the box; the worker asks the others.

It is written by hand because a box has only the standard library: four messages of the protocol, as lines of JSON
(https://modelcontextprotocol.io/specification/2025-11-25). A server starts when it is first used and lives as long as
the box. If it ends, the next call starts it again.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from weavegen.box.awaitable import awaitable
from weavegen.box.plain import clean
from weavegen.box.wire import write

PROTOCOL = "2025-11-25"
MAX_BYTES = 8 * 2**20
"""Maximum size of a message of a server."""
MAX_TOOLS = 1_000
MAX_CHARS = 140_000
"""Characters of the schemas of all tools as JSON; of an answer; of arguments that go to the worker."""
MAX_NAME_CHARS = 64
"""Maximum length of a function's name in OpenAI's API."""
GRACE_SECONDS = 0.5
"""Waiting for an answer ends this long before the operation's time limit."""
MAYBE_DONE = "the call may have had effects, and is not repeated"
REFUSED = {"code": -32601, "message": "this client answers no requests"}


class McpError(RuntimeError):
    """A server failed. The model reads the message."""


class ToolError(McpError):
    """The server answered that it could not do what was asked. The server keeps running."""


class Server:
    """A server that runs in the box. Only the main thread uses it, and it starts no threads."""

    def __init__(self, name: str, command: str, args: list[str], env: dict[str, str], until: float) -> None:
        self.name, self.number, self.received = f"the MCP server {name}", 0, b""
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self.process = subprocess.Popen(
            [command, *args], env=os.environ | env, start_new_session=True, bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.printed,
        )  # fmt: skip
        client = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "weavegen", "version": "1"}}
        try:
            self.request("initialize", client, until)
            self.send({"method": "notifications/initialized"})
        except BaseException:
            self.end()
            raise

    def request(self, method: str, params: dict[str, Any], until: float) -> dict[str, Any]:
        """Send a request and return its result. Raises McpError. After a late answer the server can go on."""
        self.number += 1
        try:
            self.send({"id": self.number, "method": method, "params": params})
            while (message := self.read(until)).get("id") != self.number or "method" in message:
                if "method" in message and "id" in message:
                    known = {"result": {}} if message["method"] == "ping" else {"error": REFUSED}
                    self.send({"id": message["id"], **known})
        except TimeoutError:
            raise McpError(f"{self.name} did not answer in time") from None
        except BaseException:
            self.end()  # half a message may have been read or written
            raise
        if "error" in message:
            error = message["error"]
            raise ToolError(str(error.get("message") if isinstance(error, dict) else error))
        return dict(message["result"])

    def send(self, message: dict[str, Any]) -> None:
        """Write a message. The operation's time limit interrupts it if the server does not read."""
        data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        try:
            write(self.process.stdin.fileno(), data)  # type: ignore[union-attr]
        except OSError:
            raise self.ended() from None

    def read(self, until: float) -> dict[str, Any]:
        """The next message. Skips lines that are not messages, such as text that a server prints."""
        stdout = self.process.stdout.fileno()  # type: ignore[union-attr]
        while True:
            line, found, rest = self.received.partition(b"\n")
            if found:
                self.received = rest
                with contextlib.suppress(ValueError, RecursionError):
                    if isinstance(message := json.loads(line), dict):
                        return message
            elif not select.select([stdout], [], [], max(until - time.monotonic(), 0.0))[0]:
                raise TimeoutError
            elif not (data := os.read(stdout, 2**20)):
                raise self.ended()
            else:
                self.received += data
            if len(self.received) > MAX_BYTES:
                raise McpError(f"{self.name} sent a message of more than {MAX_BYTES >> 20} MB")

    def ended(self) -> McpError:
        """Why the server is gone: its exit code, and the last line that it wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self.printed.seek(max(self.printed.seek(0, os.SEEK_END) - 2_000, 0))
        line = self.printed.read().decode(errors="replace").strip().rpartition("\n")[2]
        return McpError(f"{self.name} has ended with exit code {self.process.poll()}: {line[:300]}".rstrip(": "))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:  # closes its pipes
            pass


configured: dict[str, dict[str, Any] | None] = {}
"""The trace's servers by name: command, args and env; None: the worker asks it."""
running: dict[str, Server] = {}


def ask_worker(request: dict[str, Any]) -> str:
    """Have the worker call a tool of a server that it asks. The runner replaces this function."""
    raise McpError("tools of MCP servers can only be called while a callback runs")


def deadline() -> float:
    """When the running operation must end, by time.monotonic(). The runner replaces this function."""
    return time.monotonic() + 30.0


def connected(name: str, until: float) -> Server:
    """The running server of that name; it is started if necessary."""
    if name not in running or running[name].process.poll() is not None:
        try:
            running[name] = Server(name, **(configured[name] or {}), until=until)
        except (OSError, ValueError, LookupError, TypeError) as error:  # also if its answer has an unexpected form
            raise McpError(f"the MCP server {name} can't be started: {error}") from None
    return running[name]


def list_tools(known: dict[str, Any]) -> dict[str, Any]:
    """By server {"tools": JSON list of its tools} or {"error": why there are none}, including those already `known`."""
    found, room = dict(known), MAX_CHARS - sum(len(listed.get("tools", "")) for listed in known.values())
    names = sorted(name for name, server in configured.items() if server is not None and name not in known)
    for number, name in enumerate(names):
        now = time.monotonic()
        until = now + (deadline() - now) / (len(names) - number)
        try:
            page = (server := connected(name, until)).request("tools/list", {}, until)
            tools = page["tools"]
            while (cursor := page.get("nextCursor")) and len(tools) < MAX_TOOLS:
                page = server.request("tools/list", {"cursor": cursor}, until)
                tools += page["tools"]
            found[name] = listing(tools, room)
        except (McpError, LookupError, TypeError, ValueError, AttributeError) as error:
            found[name] = {"error": clean(str(error) if isinstance(error, McpError) else repr(error), 2_000)}
        room -= len(found[name].get("tools", ""))
    return found


def listing(tools: list[Any], room: int = MAX_CHARS) -> dict[str, str]:
    """What `list_tools` gives for a server. It is text, because JSONB would lose the order of the keys."""
    empty = {"type": "object", "properties": {}}
    kept = [
        {"name": tool["name"], "description": tool.get("description") or "", "parameters": empty | tool["inputSchema"]}
        for tool in tools
    ]
    text = json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace").decode()
    if len(text) > room:
        return {"error": f"schemas of its {len(kept)} tools have {len(text):,} characters: there is room for {room:,}"}
    return {"tools": text}


def named(listed: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """(server, tool) by the name that a tool has in traces: mcp__SERVER__TOOL, which can be the name of a function."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for server in sorted(listed):
        for tool in json.loads(listed[server].get("tools", "[]")):
            name = re.sub(r"\W", "_", f"mcp__{server}__{tool['name']}", flags=re.ASCII)[:MAX_NAME_CHARS]
            if name in found:
                name = f"{name[: MAX_NAME_CHARS - 4]}_{len(found)}"
            found[name] = server, tool
    return found


def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
    """Call a tool, and return its answer as text. Raises McpError if it failed."""
    if configured[server] is None:
        if len(text := json.dumps(arguments)) > MAX_CHARS:
            raise McpError(f"the arguments have {len(text):,} characters: give at most {MAX_CHARS:,}")
        return ask_worker({"server": server, "tool": tool, "arguments": text})
    connection = connected(server, until := deadline() - GRACE_SECONDS)
    try:
        return answer_text(connection.request("tools/call", {"name": tool, "arguments": arguments}, until))
    except ToolError:
        raise
    except McpError as error:
        raise McpError(f"{error}; {MAYBE_DONE}") from None


def answer_text(result: dict[str, Any]) -> str:
    """The text of a tool's result, which says what it leaves out. Raises ToolError if the tool failed."""
    parts = [part_text(part) for part in result.get("content") or () if isinstance(part, dict)]
    if not parts and result.get("structuredContent") is not None:
        parts = [json.dumps(result["structuredContent"], ensure_ascii=False)]
    text = clean("\n".join(parts), MAX_CHARS)
    if result.get("isError"):
        raise ToolError(text or "the tool failed without a message")
    return text


def part_text(part: dict[str, Any]) -> str:
    """One part of a result's content."""
    held = part["resource"] if isinstance(part.get("resource"), dict) else part
    if isinstance(held.get("text"), str):
        return str(held["text"])
    if part.get("type") == "resource_link":
        return f"(a link to {part.get('uri')})"
    size = len(str(held.get("data") or held.get("blob") or "")) * 3 // 4
    return f"({part.get('type')}, {held.get('mimeType')}, {size:,} bytes: left out)"


def functions(listed: dict[str, Any]) -> dict[str, Callable[..., str]]:
    """The tools as functions for blocks, by name. They take arguments by name."""

    def called(server: str, tool: str, /, **arguments: Any) -> str:
        return call(server, tool, arguments)

    return {name: awaitable(partial(called, server, tool["name"])) for name, (server, tool) in named(listed).items()}
