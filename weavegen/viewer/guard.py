"""Protection of the viewer's users: security headers, and no requests that other sites make a browser send."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    # No inline scripts or styles, nothing from other hosts, and no frame around a page.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without any, browsers send forms with the origin null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names of the viewer in a browser on the same machine."""
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9][A-Za-z0-9._-]*))(?::([0-9]{1,5}))?")
"""The header Host: an IPv6 address in brackets or a name, and a port."""


class Guard:
    """Middleware that rejects requests for other host names (DNS rebinding) and forms from other sites (CSRF)."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self.app, self.hosts = app, hosts
        """`hosts`: host names that are answered. None: all, for a viewer that serves a network."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a saved page has a policy of its own
            await send(message)

        if (refusal := self.refusal(str(scope["method"]), Headers(scope=scope))) is not None:
            await PlainTextResponse(refusal + "\n", 403)(scope, receive, with_headers)
        else:
            await self.app(scope, receive, with_headers)

    def refusal(self, method: str, headers: Headers) -> str | None:
        """Why a request is rejected. None if it is accepted."""
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            return "the header Host must be there once, and be a host name with at most a port"
        if self.hosts is not None and name not in self.hosts:
            return "this viewer answers on its own machine only: open http://127.0.0.1 with its port"
        if method in ("GET", "HEAD"):
            return None
        if headers.getlist("origin") not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
            return "only the viewer's own pages may write"
        return None


def host_name(header: str) -> str | None:
    """The host name in a header Host, in lower case; None if the header is malformed."""
    match = HOST.fullmatch(header)
    if match is None or int(match[3] or 0) > 65_535:
        return None
    return (match[1] or match[2]).lower()
