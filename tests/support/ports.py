"""Free TCP ports, and the addresses on which processes listen."""

import contextlib
import socket

import psutil


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listening(pid: int) -> list[str]:
    """IP addresses on which a process and its descendants listen. Descendants may end meanwhile."""
    parent = psutil.Process(pid)
    found: list[str] = []
    for process in [parent, *parent.children(recursive=True)]:
        # PostgreSQL's autovacuum workers, for example, end at any time.
        with contextlib.suppress(*([] if process == parent else [psutil.NoSuchProcess])):
            found += [
                connection.laddr.ip
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM
            ]
    return found
