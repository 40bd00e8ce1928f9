"""Malformed, endless and incomplete answers of model servers, by name."""

import gzip
import json
from collections.abc import Callable
from typing import Any

from tests.support.raw_server import Raw, answer, completion, endless

Request = dict[str, Any]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n"


def changed(**changes: Any) -> Callable[[Request], Raw]:
    """A valid answer, except that these fields of its choices are changed."""
    return lambda request: answer(completion(request, **changes))


def body(data: bytes, status: str = "200 OK", *headers: str) -> Callable[[Request], Raw]:
    return lambda request: answer(data, status, *headers)


def tokens(*listed: str, values: Any = (-0.2,)) -> Callable[[Request], Raw]:
    logprobs = {"tokens": list(listed), "token_logprobs": list(values), "top_logprobs": [{"Yes": -0.2}]}
    return changed(logprobs=logprobs)


def replaced(old: bytes, new: bytes) -> Callable[[Request], Raw]:
    return lambda request: answer(json.dumps(completion(request)).encode().replace(old, new))


MALFORMED: dict[str, Callable[[Request], Raw]] = {
    "nothing": lambda request: b"",
    "empty body": body(b""),
    "HTTP/0.9": lambda request: b'{"choices": []}\n',
    "junk": lambda request: bytes(range(256)),
    "TLS": lambda request: b"\x15\x03\x01\x00\x02\x02\x46",
    "status that is no number": lambda request: b"HTTP/1.1 OK 200\r\n\r\n{}",
    "huge status": lambda request: b"HTTP/1.1 99999999999999999999 OK\r\n\r\n{}",
    "not JSON": body(b"<html>502</html>"),
    "JSON cut off": lambda request: answer(json.dumps(completion(request)).encode()[:-9]),
    "body cut off": lambda request: answer(b"{}", length=1000),
    "invalid UTF-8": body(b'{"choices": [{"index": 0, "text": "\xff\xfe"}]}'),
    "half a surrogate pair": replaced(b'"Yes", "finish', b'"\\ud800", "finish'),
    "deeply nested": body(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b', "choices": []}'),
    "deeply nested text": body(b'{"choices": [{"index": 0, "text":' + b'{"a":' * 200_000),
    "NaN": replaced(b"-0.2", b"NaN"),
    "infinite": replaced(b"-0.2", b"-1e999"),
    "a number of 5,000 digits": replaced(b"-0.2", b"9" * 5000),
    "a token id of 5,000 digits": tokens("token_id:" + "9" * 5000),
    "token_id:x": tokens("token_id:x"),
    "a negative token id": tokens("token_id:-5"),
    "fewer logprobs than tokens": tokens("token_id:5", "token_id:6"),
    "logprobs that are texts": tokens("token_id:5", values=["a"]),
    "a list": body(b"[]"),
    "null": body(b"null"),
    "no choices": body(b"{}"),
    "choices of null": body(b'{"choices": null}'),
    "too few choices": body(b'{"choices": []}'),
    "too many choices": lambda request: answer({"choices": completion(request)["choices"] * 2}),
    "equal indexes": changed(index=0),
    "wrong indexes": changed(index=7),
    "an index of 5,000 digits": replaced(b'"index": 0', b'"index": ' + b"9" * 5000),
    "a text that is a number": changed(text=5),
    "a finish reason that is a list": changed(finish_reason=[]),
    "an aborted text": changed(finish_reason="abort"),
    "usage of texts": lambda request: answer(completion(request) | {"usage": {"prompt_tokens": "many"}}),
    "negative usage": lambda request: answer(completion(request) | {"usage": {"prompt_tokens": -1}}),
    "a chunk of 2^63 bytes": lambda request: CHUNKED + b"8000000000000000\r\n{}",
    "a chunk of 2^31 bytes": lambda request: CHUNKED + b"80000000\r\n{}",
    "a chunk of -1 bytes": lambda request: endless(CHUNKED + b"-1\r\n", b" " * 65_536),
    "a chunk size that is no number": lambda request: CHUNKED + b"many\r\n{}\r\n0\r\n\r\n",
    "an endless chunk size": lambda request: endless(CHUNKED, b"0" * 65_536),
    "a length of 2^62": lambda request: answer(b"{}", length=2**62),
    "a negative length": lambda request: answer(b"{}", length=-5),
    "an endless body": lambda request: endless(HEAD + b"\r\n", b" " * 65_536),
    "endless chunks": lambda request: endless(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n"),
    "an endless header": lambda request: endless(HEAD + b"X: ", b"x" * 65_536),
    "thousands of headers": lambda request: HEAD + b"X: y\r\n" * 5000 + b"\r\n{}",
    "endless 100 Continue": lambda request: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a gzip bomb": body(gzip.compress(bytes(2**26)), "200 OK", "Content-Encoding: gzip"),
    "another encoding": body(b"{}", "200 OK", "Content-Encoding: br"),
    "no content": body(b"", "204 No Content"),
    "a body of 200 MB": lambda request: answer(b'{"choices": [], "x": "' + b"x" * 200_000_000 + b'"}'),
}
