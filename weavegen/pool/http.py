"""JSON over HTTP with urllib3, for thousands of threads. Its errors become weavegen's."""

import urllib.request
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import urllib3

from weavegen.config import NO_KEY
from weavegen.errors import Busy, ModelError, Refused, TransientError

T = TypeVar("T")

MAX_CONNECTIONS = 4096
"""Connections kept open per server: one for each request in flight."""
CONNECT_TIMEOUT_SECONDS = 5.0
BUSY_STATUSES = frozenset({408, 425, 429, 503})
"""HTTP statuses of an overloaded server."""

_encode = msgspec.json.Encoder().encode


class Http:
    """Connections to one or a few servers. Requests are not retried."""

    def __init__(self, api_key: str, timeout: float) -> None:
        """`timeout`: seconds to wait for an answer, unless a request has its own."""
        self._api_key = api_key
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_SECONDS, timeout), read=timeout)
        self._direct = urllib3.PoolManager(num_pools=64, maxsize=MAX_CONNECTIONS, block=False)
        self._proxies = {
            scheme: urllib3.ProxyManager(url, num_pools=64, maxsize=MAX_CONNECTIONS)
            for scheme, url in urllib.request.getproxies().items()
            if scheme in ("http", "https")
        }

    def get(self, url: str, timeout: float | None = None) -> bytes:
        """Return the body at a URL."""
        return self._request("GET", url, None, timeout)

    def post(self, url: str, body: Mapping[str, Any], type: type[T], timeout: float | None = None) -> T:
        """Post a JSON body and decode the answer as `type`."""
        answer = self.send(url, body, timeout)
        try:
            return msgspec.json.decode(answer, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(f"{url} sent an invalid answer: {error}") from None

    def send(self, url: str, body: Mapping[str, Any], timeout: float | None = None) -> bytes:
        """Post a JSON body and return the answer's body."""
        return self._request("POST", url, _encode(body), timeout)

    def close(self) -> None:
        """Close the connections."""
        for manager in (self._direct, *self._proxies.values()):
            manager.clear()

    def _request(self, method: str, url: str, body: bytes | None, timeout: float | None) -> bytes:
        """Raise Refused without a connection, TransientError if a later attempt may succeed, else ModelError."""
        options: dict[str, Any] = {"headers": self._headers, "retries": False, "redirect": False}
        try:
            manager, seconds = self._manager(url), self._timeout if timeout is None else timeout
            answer = manager.request(method, url, body=body, timeout=seconds, **options)
        except urllib3.exceptions.NewConnectionError as error:
            raise Refused(f"no connection to {url}: {error}") from None
        except urllib3.exceptions.TimeoutError:
            raise TransientError(f"{url} did not answer in time") from None
        except urllib3.exceptions.LocationValueError as error:
            raise ModelError(f"{url} is not an address: {error}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TransientError(f"the connection to {url} was lost: {error}") from None
        if answer.status == 200:
            return answer.data
        message = f"{url} answered {answer.status}: {self._message(answer.data)}"
        if answer.status in BUSY_STATUSES:
            raise Busy(message)
        if answer.status >= 500:
            raise TransientError(message)
        raise ModelError(message)

    def _message(self, body: bytes) -> str:
        """Return the message of an error body, in the form of vLLM and OpenAI, or else the whole body."""
        try:
            message = msgspec.json.decode(body, type=_ErrorBody).error.message
        except (msgspec.MsgspecError, UnicodeDecodeError):
            message = body[:20_000].decode(errors="replace")
        # The message is stored with the trace, and some servers repeat the request in it: hide the key.
        return (message if self._api_key == NO_KEY else message.replace(self._api_key, "***"))[:2000]

    def _manager(self, url: str) -> urllib3.PoolManager:
        """Choose the proxy by HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme)
        return self._direct if proxy is None or urllib.request.proxy_bypass(parts.netloc) else proxy


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error
