"""MCP servers that the worker asks over streamable HTTP, through the package mcp. Each request is its own session."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from weavegen.box.mcp import MAX_BYTES, MAX_TOOLS, MAYBE_DONE, McpError, answer_text, listing
from weavegen.errors import Unserved
from weavegen.kernel.mcp import McpServer
from weavegen.variables import hidden, resolved, resolved_values

if TYPE_CHECKING:
    from mcp import Client

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs addresses, which may hold secrets
RETRY_SECONDS = 10.0  # between two attempts to reach a server whose tools a trace waits for
REFUSALS = (-32700, -32600, -32601, -32602)
"""JSON-RPC errors that say that a call was not made: malformed, invalid, no such method, invalid arguments."""


def list_tools(name: str, server: McpServer, seconds: float, room: int) -> dict[str, str]:
    """The tools of a server, as box/mcp.py lists them. Raises Unserved while nobody listens at its address."""

    async def question(client: "Client") -> list[dict[str, Any]]:
        page = await client.list_tools()
        tools = page.tools
        while page.next_cursor and len(tools) < MAX_TOOLS:
            page = await client.list_tools(cursor=page.next_cursor)
            tools += page.tools
        return [tool.model_dump(mode="json", by_alias=True) for tool in tools]

    session = Session(name, server, seconds)
    try:
        return listing(session.ask(question), room)
    except McpError as error:
        if session.unreachable:
            raise Unserved(str(error), seconds=RETRY_SECONDS) from None
        return {"error": str(error)}


def call(name: str, server: McpServer, tool: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Call a tool: {"values": text}, or {"error": line}, with "unreachable" where nobody listens at its address."""

    async def unchecked(name: str, result: Any) -> None:
        """Take any answer. The package would list the tools again, and lose an answer that breaks its schema."""

    async def question(client: "Client") -> dict[str, Any]:
        client.session.validate_tool_result = unchecked  # type: ignore[method-assign]
        return (await client.call_tool(tool, arguments)).model_dump(mode="json", by_alias=True)

    session = Session(name, server, seconds)
    try:
        return {"values": hidden(answer_text(session.ask(question)), server.texts())}
    except McpError as error:
        answer = {"error": hidden(str(error), server.texts())}
        return answer | {"unreachable": True} if session.unreachable else answer


class Session:
    """One question to a server, in `seconds` at most."""

    def __init__(self, name: str, server: McpServer, seconds: float) -> None:
        self.name, self.server, self.seconds, self.room = f"the MCP server {name}", server, seconds, MAX_BYTES
        self.sent = self.unreachable = False
        """Whether a tool was called; whether nobody listens at the server's address."""

    def ask(self, question: "Callable[[Client], Awaitable[Any]]") -> Any:
        """The answer. Raises McpError with a line for the model."""
        answers: list[Any] = []
        try:
            asyncio.run(self._ask(question, answers))
        except Exception as error:  # noqa: BLE001 - groups of errors of mcp, of HTTP, of pydantic
            if not answers:  # else only the end of the session failed
                raise McpError(hidden(self.reason(error), self.server.texts())) from None
        return answers[0]

    async def _ask(self, question: "Callable[[Client], Awaitable[Any]]", answers: list[Any]) -> None:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        session = self

        class Bounded(httpx2.AsyncByteStream):
            """The bytes of a response, as long as the session has room."""

            def __init__(self, stream: Any) -> None:
                self.stream = stream

            async def __aiter__(self) -> AsyncIterator[bytes]:
                async for data in self.stream:
                    session.room -= len(data)
                    if session.room < 0:
                        raise httpx2.ReadError("too many bytes")
                    yield data

            async def aclose(self) -> None:
                await self.stream.aclose()

        async def note(request: httpx2.Request) -> None:
            session.sent |= request.method == "POST" and b'"tools/call"' in request.content

        async def bound(response: httpx2.Response) -> None:
            response.stream = Bounded(response.stream)

        hooks: dict[str, list[Callable[..., Any]]] = {"request": [note], "response": [bound]}
        headers = resolved_values(self.server.headers)
        async with (
            asyncio.timeout(self.seconds + 1),
            httpx2.AsyncClient(headers=headers, timeout=self.seconds, event_hooks=hooks) as http,
            Client(
                streamable_http_client(resolved(self.server.url or ""), http_client=http, max_sse_event_size=MAX_BYTES),
                read_timeout_seconds=self.seconds,
            ) as client,
        ):
            answers.append(await question(client))

    def reason(self, error: BaseException) -> str:
        """Why there is no answer, in one line."""
        import httpx2
        from mcp import MCPError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, MCPError) and error.code in REFUSALS and self.sent:
            return f"{self.name} refused the call: {error.message}"
        why = error.message if isinstance(error, MCPError) else f"{type(error).__name__} {error}"
        why = f"it sent more than {MAX_BYTES >> 20} MB" if self.room < 0 else " ".join(why.split())[:500]
        self.unreachable = not self.sent and isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        return f"{self.name} gave no answer: {why}; {MAYBE_DONE if self.sent else 'nothing was sent'}"
