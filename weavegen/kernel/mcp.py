"""MCP servers as a job names them. docs/mcp.md describes the form, which is that of other clients."""

import msgspec


class McpServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server with a `command` runs in the trace's box; one with a `url` is asked by the worker.

    `${NAME}` and `${NAME:-default}` in a text stand for a variable of the execute workers.
    """

    type: str | None = None
    """How other clients name the transport."""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}

    def texts(self) -> tuple[str, ...]:
        """All texts that may name variables."""
        return (self.command or "", self.url or "", *self.args, *self.env.values(), *self.headers.values())
