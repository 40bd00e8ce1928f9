"""JSON over HTTP, for thousands of threads at once: urllib3, and its errors as weavegen's."""

import urllib.request
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import urllib3

from weavegen.config import NO_KEY
from weavegen.errors import Busy, ModelError, Refused, TransientError

T = TypeVar("T")

CONNECTIONS = 4096
"""Kept open to a server at most: one for each request in flight."""
CONNECT_TIMEOUT = 5.0
"""Seconds."""
BUSY = frozenset({408, 425, 429, 503})
"""Statuses of a server that has too much to do."""

_encode = msgspec.json.Encoder().encode


class Http:
    """Connections to one server or a few. Nothing is retried."""

    def __init__(self, api_key: str, timeout: float) -> None:
        """`timeout`: seconds to wait for an answer."""
        self._api_key = api_key
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout)
        self._direct = urllib3.PoolManager(num_pools=64, maxsize=CONNECTIONS, block=False)
        self._proxies = {
            scheme: urllib3.ProxyManager(url, num_pools=64, maxsize=CONNECTIONS)
            for scheme, url in urllib.request.getproxies().items()
            if scheme in ("http", "https")
        }

    def get(self, url: str, timeout: float | None = None) -> bytes:
        """The body at an address."""
        return self._request("GET", url, None, timeout)

    def post(self, url: str, body: Mapping[str, Any], type: type[T], timeout: float | None = None) -> T:
        """The answer to a JSON body, as `type`."""
        answer = self.send(url, body, timeout)
        try:
            return msgspec.json.decode(answer, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(f"{url} answered what can't be read: {error}") from None

    def send(self, url: str, body: Mapping[str, Any], timeout: float | None = None) -> bytes:
        """The answer to a JSON body, as it is."""
        return self._request("POST", url, _encode(body), timeout)

    def close(self) -> None:
        """Close the connections."""
        for manager in (self._direct, *self._proxies.values()):
            manager.clear()

    def _request(self, method: str, url: str, body: bytes | None, timeout: float | None) -> bytes:
        """Raises Refused where nobody listens, TransientError for what may succeed later, ModelError else."""
        try:
            answer = self._manager(url).request(
                method,
                url,
                body=body,
                headers=self._headers,
                timeout=self._timeout if timeout is None else timeout,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.NewConnectionError as error:
            raise Refused(f"no connection to {url}: {error}") from None
        except urllib3.exceptions.TimeoutError:
            raise TransientError(f"{url} did not answer in time") from None
        except urllib3.exceptions.LocationValueError as error:
            raise ModelError(f"{url} is no address: {error}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TransientError(f"the connection to {url} was lost: {error}") from None
        if answer.status == 200:
            return answer.data
        said = f"{url} answered {answer.status}: {self._message(answer.data)}"
        if answer.status in BUSY:
            raise Busy(said)
        if answer.status >= 500:
            raise TransientError(said)
        raise ModelError(said)

    def _message(self, body: bytes) -> str:
        """What a server said: vLLM's and OpenAI's form, or the text as it is."""
        try:
            said = msgspec.json.decode(body, type=_Refusal).error.message
        except (msgspec.MsgspecError, UnicodeDecodeError):
            said = body[:20_000].decode(errors="replace")
        # It is kept with the trace, and some servers repeat what they were sent.
        return (said if self._api_key == NO_KEY else said.replace(self._api_key, "***"))[:2000]

    def _manager(self, url: str) -> urllib3.PoolManager:
        """By HTTP_PROXY, HTTPS_PROXY and NO_PROXY, as other clients do."""
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme)
        return self._direct if proxy is None or urllib.request.proxy_bypass(parts.netloc) else proxy


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error
