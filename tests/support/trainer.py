"""A simulation of the queue server of Atropos, on loopback."""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from weavegen.exports import atropos

Json = dict[str, Any]


def check_group(group: Json) -> None:
    """Check a group against atroposlib's ScoredData and its documentation of masks and logprobs."""
    assert set(group) == set(atropos.SCHEMA.names)
    size = len(group["tokens"])
    assert size >= 2
    for name in ("masks", "scores", "inference_logprobs", "messages", "overrides"):
        assert len(group[name]) == size, name
    for tokens, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        assert len(tokens) == len(masks) == len(logprobs)
        written = next(place for place, mask in enumerate(masks) if mask != -100)
        assert written > 100
        assert masks[:written] == [-100] * written
        assert masks[written:] == tokens[written:]
        assert logprobs[:written] == [1.0] * written
        assert all(value <= 0 for value in logprobs[written:])
    for name in ("advantages", "ref_logprobs", "env_id"):
        assert group[name] is None
    assert all(math.isfinite(score) for score in group["scores"])
    for messages in group["messages"]:
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert all(message["content"] for message in messages)
    assert isinstance(group["generation_params"], dict)
    assert isinstance(group["group_overrides"], dict)


class Trainer(ThreadingHTTPServer):
    """A queue like that of Atropos's server. It checks groups in the same way."""

    def __init__(self, batch_size: int = 512, max_token_len: int = 100_000, fail: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Queue)
        self.info = {"batch_size": batch_size, "max_token_len": max_token_len}
        self.groups: list[Json] = []
        self.fail = fail
        """Number of requests that fail before the first success."""
        self.full = 0
        """Number of status requests that report a full queue."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Queue(BaseHTTPRequestHandler):
    server: Trainer

    def do_GET(self) -> None:
        if self.path == "/status":
            self.server.full -= 1
            waiting = 10_000 if self.server.full >= 0 else len(self.server.groups)
            self.answer(200, {"current_step": 0, "queue_size": waiting})
        else:
            self.answer(200, self.server.info)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.fail:
            self.server.fail -= 1
            self.answer(503, {"detail": "busy"})
            return
        try:
            assert self.path == "/scored_data"
            check_group(body)
        except AssertionError as error:
            self.answer(422, {"detail": str(error)})
            return
        self.server.groups.append(body)
        self.answer(200, {"status": "received"})

    def answer(self, status: int, body: Json) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass
