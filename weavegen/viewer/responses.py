"""Numbers from addresses, and HTTP responses."""

from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from weavegen.errors import UsageError
from weavegen.viewer.rendering import templates

NO_STORE = {"cache-control": "no-store"}
"""The database changes all the time."""
MAX_DIGITS = 15
"""Maximum digits of a number in an address. The database can multiply such a number by the rows of a page."""


def page(template: str, status: int = 200, /, **values: Any) -> Response:
    text = templates().get_template(template).render(**values)
    # An address may contain lone surrogates, which can't be encoded.
    return HTMLResponse(text.encode(errors="replace"), status, headers=NO_STORE)


def path_number(request: Request, name: str) -> int:
    """A number in the path. Raises UsageError if no row can have it."""
    return whole_number(str(request.path_params[name]))


def query_number(request: Request, name: str) -> int | None:
    """A number in the query string; None if it is missing or empty. Raises UsageError if no row can have it."""
    text = request.query_params.get(name, "").strip()
    return whole_number(text) if text else None


def whole_number(text: str) -> int:
    """The number of a row. Raises UsageError if the text is not a number, or no row can have it."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r:.40} is not a number")
    digits = text.lstrip("0") or "0"
    if len(digits) > MAX_DIGITS:
        raise UsageError(f"there is no number {digits:.40}")
    return int(digits)


async def form(request: Request, most: int) -> dict[str, str]:
    """The fields of a form. Raises UsageError if they have more than `most` characters, or about as many."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > 12 * most + 1_000:  # a form encodes a character in up to 12 bytes
            raise UsageError(f"the form is too long: it can have {most:,} characters")
    return dict(parse_qsl(body.decode(errors="replace")))


def attachment(name: str) -> dict[str, str]:
    """Headers that make a browser save the response as a file."""
    return {"content-disposition": f'attachment; filename="{name}"'}
