"""The HTTP server in which the viewer and the model servers of this project run."""

import socket

import uvicorn


class Server(uvicorn.Server):
    """uvicorn's, which minds Ctrl-C from its first moment."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGINT or SIGTERM, then raise it again: KeyboardInterrupt, by Python's default."""
        # uvicorn itself minds signals once its event loop runs. A Ctrl-C before that, while the loop is made,
        # left it half made, and Python complained of that at length.
        with self.capture_signals():
            super().run(sockets)
