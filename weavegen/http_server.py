"""What the viewer, the page of metrics and the model servers have in common: a listening socket, and Ctrl-C."""

import socket

import uvicorn

from weavegen.errors import UsageError


class Server(uvicorn.Server):
    """A uvicorn server that handles Ctrl-C even before its event loop runs."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGINT or SIGTERM, then raise the signal again (by default KeyboardInterrupt)."""
        # uvicorn captures signals only while its loop runs. A Ctrl-C during the loop's setup would break the setup.
        with self.capture_signals():
            super().run(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address; port 0 means any free port. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With IPPROTO_TCP asyncio sets TCP_NODELAY. Without that an answer may wait 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"can't listen on {host}:{port} ({reason}): give another port, or 0 for a free port") from None
    return listener
