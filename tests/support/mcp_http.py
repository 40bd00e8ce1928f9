"""An MCP server over streamable HTTP, made with the package mcp. It appends a letter to a file for each call.

Arguments: port, file.
"""

import sys
import time
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

server = MCPServer("web", log_level="CRITICAL")
calls = Path(sys.argv[2])


def note() -> None:
    with calls.open("a") as file:
        file.write("x")


@server.tool()
def add(first: int, second: int = 2) -> int:
    """Add two numbers."""
    note()
    return first + second


@server.tool()
async def sleep(seconds: float) -> str:
    """Answer late."""
    note()
    await anyio.sleep(seconds)
    return "slept"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


@server.tool()
def big(n: int) -> str:
    """Answer with n characters."""
    return "x" * n


@server.tool()
def picture() -> Image:
    """Answer with a picture."""
    return Image(data=b"\x89PNG" + bytes(100), format="png")


@server.tool()
def headers(context: Context) -> str:  # type: ignore[type-arg]
    """Say what the header X-Key has."""
    return str((context.headers or {}).get("x-key"))


@server.tool()
def now() -> str:
    """Say what time it is."""
    note()
    return str(time.time())


@server.tool(structured_output=False)
def promises() -> str:
    """Answer with text, although a schema of the output is declared."""
    return "12 degrees"


declared = server._tool_manager.get_tool("promises")
assert declared is not None
declared.fn_metadata.output_schema = {"type": "object", "properties": {"degrees": {"type": "integer"}}}

server.run("streamable-http", port=int(sys.argv[1]))
