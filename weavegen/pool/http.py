"""JSON over HTTP with urllib3, for thousands of threads. Its errors become weavegen's.

The size and the time of every answer are bounded, and a faulty answer raises a TransientError.
"""

import contextlib
import http.client
import io
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import urllib3

from weavegen.config import NO_KEY
from weavegen.errors import Busy, ModelError, NotFound, Refused, TransientError, Unfit

T = TypeVar("T")

MAX_CONNECTIONS = 4096  # connections kept open per server: one for each request in flight
CONNECT_TIMEOUT_SECONDS = 5.0
MIN_ANSWER_BYTES, MAX_ANSWER_BYTES = 8 * 2**20, 256 * 2**20
"""Bounds on the limit of an answer's size, head included."""
PIECE_BYTES = 2**20
BODY_SECONDS = 60.0  # time from the first byte of an answer's JSON to its last one
BUSY_STATUSES = frozenset({408, 425, 429, 503})  # HTTP statuses of an overloaded server
REQUEST_STATUSES = frozenset({400, 409, 413, 414, 415, 422, 431})
"""HTTP statuses that concern the request. All others concern the server or its address."""
ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
GONE = {getattr(socket, name): value for name, value in ALIVE.items() if hasattr(socket, name)}
"""Options of TCP: a connection to a host that has gone without a word ends after half a minute, not after hours."""
SOCKET_OPTIONS = [(socket.IPPROTO_TCP, option, value) for option, value in {socket.TCP_NODELAY: 1, **GONE}.items()]
SOCKET_OPTIONS += [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
KEY_ADVICE = "check OPENAI_API_KEY, or WEAVEGEN_POOL_KEY for a lent server"

_encode = msgspec.json.Encoder().encode


class _Bounds(threading.local):
    """Bounds on the answer to the request that this thread sends. http.client has no other way to pass them on."""

    bytes = MIN_ANSWER_BYTES
    until = 0.0
    """By the monotonic clock."""


_bounds = _Bounds()


class _BoundedReader(io.RawIOBase):
    """Reads an answer, its head included, from a socket, within limits on time and bytes."""

    def __init__(self, answer: io.BufferedReader, sock: socket.socket) -> None:
        self._answer, self._sock = answer, sock
        self._left = _bounds.bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = _bounds.until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(seconds)
        count = self._answer.readinto1(buffer)
        self._left -= count
        if self._left < 0:
            raise TransientError(f"more than {_bounds.bytes >> 20} MiB", kind="malformed")
        return count

    def close(self) -> None:
        self._answer.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_BoundedReader(self.fp, sock))


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _Answer

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:  # the last answer left the rest of its own time limit there
            self.sock.settimeout(self.timeout)
        super().request(*arguments, **options)


class _SecureConnection(_Connection, urllib3.connection.HTTPSConnection):
    pass


class _Connections(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecureConnections(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


POOL_CLASSES = {"http": _Connections, "https": _SecureConnections}


class Http:
    """Connections to one or a few servers. Requests are not retried, and redirects are not followed."""

    def __init__(self, api_key: str, timeout: float) -> None:
        """`timeout`: seconds within which an answer must be complete, unless a request has its own."""
        self._api_key = api_key
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._timeout = timeout
        self._direct = urllib3.PoolManager(num_pools=64, maxsize=MAX_CONNECTIONS, socket_options=SOCKET_OPTIONS)
        self._direct.pool_classes_by_scheme = POOL_CLASSES
        self._addresses = urllib.request.getproxies()
        self._proxies: dict[str, urllib3.ProxyManager] = {}  # by scheme

    def get(self, url: str, timeout: float | None = None) -> bytes:
        return self._request("GET", url, None, timeout)

    def post(
        self, url: str, body: Mapping[str, Any], type: type[T], timeout: float | None = None, *, most: int = 0
    ) -> T:
        """Post a JSON body and decode the answer as `type`. `most`: bytes that a large answer may have."""
        return decoded(url, self.send(url, body, timeout, most=most), type)

    def send(self, url: str, body: Mapping[str, Any] | bytes, timeout: float | None = None, *, most: int = 0) -> bytes:
        """Post a JSON body, which may be encoded already, and return the answer's body."""
        return self._request("POST", url, body if isinstance(body, bytes) else _encode(body), timeout, most)

    def close(self) -> None:
        for manager in (self._direct, *self._proxies.values()):
            manager.clear()

    def _request(self, method: str, url: str, body: bytes | None, timeout: float | None, most: int = 0) -> bytes:
        """Raise ModelError if the request is refused for good, else a TransientError."""
        manager, seconds = self._manager(url), self._timeout if timeout is None else timeout
        _bounds.bytes = min(MAX_ANSWER_BYTES, max(MIN_ANSWER_BYTES, most))
        _bounds.until = time.monotonic() + seconds
        waits = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_SECONDS, seconds), read=seconds)
        options: dict[str, Any] = {"headers": self._headers, "retries": False, "redirect": False}
        options |= {"preload_content": False, "decode_content": False}
        try:
            answer = manager.request(method, url, body=body, timeout=waits, **options)
            data = b""
            while not data.strip() and (data := answer.read1(PIECE_BYTES)):
                pass  # DeepSeek sends blank lines while a request waits
            _bounds.until = min(_bounds.until, time.monotonic() + BODY_SECONDS)  # the answer is complete by now
            data += b"".join(iter(lambda: answer.read(PIECE_BYTES), b""))
        except TransientError as error:
            raise TransientError(f"{url} answered {error}", kind=error.kind) from None
        except urllib3.exceptions.NewConnectionError as error:
            raise Refused(f"no connection to {url}: {str(error).partition(': ')[2]}") from None
        except urllib3.exceptions.TimeoutError as error:
            if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
                seconds = min(CONNECT_TIMEOUT_SECONDS, seconds)
            raise TransientError(f"{url} did not answer in time ({seconds:g} s)", kind="timeout") from None
        except urllib3.exceptions.LocationValueError as error:
            raise ModelError(f"{url} is not an address: {error}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TransientError(f"the connection to {url} was lost: {error}", kind="connection") from None
        except (http.client.HTTPException, ValueError, ArithmeticError, MemoryError) as error:
            raise TransientError(f"{url} sent an invalid answer: {error!r:.300}", kind="malformed") from None
        if answer.status != 200:
            raise self._refusal(url, answer, data)
        if (encoding := answer.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise Unfit(f"{url} sent an answer in the encoding {encoding:.40}, which was not asked for")
        return data

    def _refusal(self, url: str, answer: urllib3.BaseHTTPResponse, body: bytes) -> Exception:
        status = answer.status
        message = f"{url} answered {status}: {self._message(body)}"
        if status in REQUEST_STATUSES:
            return ModelError(message)
        if status in (404, 405, 501):
            return NotFound(message)
        if status in (401, 403):
            return Unfit(f"{message} ({KEY_ADVICE})")
        if 300 <= status < 400:
            place = answer.headers.get("Location", "nowhere")
            return Unfit(f"{url} answered {status}, a redirect to {place:.200}: give the server's own address")
        if status in BUSY_STATUSES:
            seconds: float | None = None
            with contextlib.suppress(ValueError):  # there is no such header, or it has a date
                seconds = max(0.0, float(answer.headers.get("Retry-After", "")))
            return Busy(message, seconds=seconds)
        return TransientError(message, kind="status")

    def _message(self, body: bytes) -> str:
        """Return the message of an error body, in the form of vLLM and OpenAI, or else the whole body."""
        try:
            message = str(decoded("", body, dict[str, Any])["error"]["message"])
        except (TransientError, LookupError, TypeError):
            message = body[:20_000].decode(errors="replace")
        # The message is stored with the trace, and some servers repeat the request in it: hide the key.
        return (message if self._api_key == NO_KEY else message.replace(self._api_key, "***"))[:2000]

    def _manager(self, url: str) -> urllib3.PoolManager:
        """Choose the proxy by HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Raises Unfit."""
        parts = urlsplit(url)
        if (address := self._addresses.get(parts.scheme)) is None or urllib.request.proxy_bypass(parts.netloc):
            return self._direct
        if parts.scheme not in self._proxies:
            self._proxies[parts.scheme] = _proxy(address, f"{parts.scheme.upper()}_PROXY")
        return self._proxies[parts.scheme]


def _proxy(address: str, name: str) -> urllib3.ProxyManager:
    """The proxy at an address, which may have credentials. Raises Unfit if the variable `name` has no such address."""
    try:
        auth = urllib3.util.parse_url(address).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        given: dict[str, Any] = {"proxy_headers": headers, "socket_options": SOCKET_OPTIONS}
        proxy = urllib3.ProxyManager(address, num_pools=64, maxsize=MAX_CONNECTIONS, **given)
    except ValueError:
        raise Unfit(f"{name} has no address of an HTTP proxy: give http://host:port, or set NO_PROXY") from None
    proxy.pool_classes_by_scheme = POOL_CLASSES
    return proxy


def decoded(url: str, body: bytes, type: type[T]) -> T:
    """Decode what a server answered. Raises TransientError."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise TransientError(f"{url} sent an invalid answer: {error}", kind="malformed") from None
