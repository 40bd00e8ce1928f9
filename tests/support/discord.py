"""A simulation of Discord on loopback: the four REST calls that the bridge makes."""

import json
import threading
import time
import urllib.parse
from collections import defaultdict, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "a-simulated-token"
EPOCH = 1_420_070_400_000


class DiscordSimulation:
    """Channels with messages."""

    def __init__(self) -> None:
        self.messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.reactions: list[tuple[str, str, str]] = []
        """(channel, message id, emoji)"""
        self.answers: deque[tuple[int, dict[str, Any]]] = deque()
        """(status, body) of the next responses, instead of the usual ones."""
        self.requests: list[tuple[float, str, str]] = []
        """(time, method, path) of every request, including refused ones."""
        self.bodies: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.count = 0
        simulation = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                simulation.handle(self)

            do_POST = do_PUT = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/api/v10"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def say(self, channel: str, name: str, text: str, about: str | None = None, bot: bool = False) -> str:
        """Add a message. Returns its id."""
        with self.lock:
            self.count += 1
            id = str(((int(time.time() * 1000) - EPOCH) << 22) + self.count)
            self.messages[channel].append(
                {
                    "id": id,
                    "content": text,
                    "author": {"username": name, "bot": bot},
                    "message_reference": {"message_id": about} if about else None,
                }
            )
            return id

    def react(self, channel: str, message: str, emoji: str, me: bool = False) -> None:
        """Add a reaction of a person, or the bot's own."""
        with self.lock:
            [one] = [one for one in self.messages[channel] if one["id"] == message]
            for reaction in one.setdefault("reactions", []):
                if reaction["emoji"]["name"] == emoji:
                    reaction["count"] += 1
                    reaction["me"] = reaction["me"] or me
                    return
            one["reactions"].append({"emoji": {"id": None, "name": emoji}, "count": 1, "me": me})

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append((time.monotonic(), request.command, request.path))
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)) or b"{}")
        if request.headers["Authorization"] != f"Bot {TOKEN}":
            status, answer = 401, {"message": "401: Unauthorized"}
        elif self.answers:
            status, answer = self.answers.popleft()
        else:
            status, answer = self.do(request.command, request.path, body)
        data = b"" if answer is None else json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def do(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        where = urllib.parse.urlsplit(path)
        parts = where.path.removeprefix("/api/v10/channels/").split("/")
        channel = parts[0]
        if method == "POST":
            self.bodies.append(body)
            before = [m for m in self.messages[channel] if m.get("nonce") == body["nonce"]]
            if before and body["enforce_nonce"]:
                return 200, before[0]
            about = (body.get("message_reference") or {}).get("message_id")
            id = self.say(channel, "weavegen", body["content"], about, bot=True)
            self.messages[channel][-1]["nonce"] = body["nonce"]
            return 200, {"id": id}
        if method == "PUT":
            self.reactions.append((channel, parts[2], urllib.parse.unquote(parts[4])))
            return 204, None
        query = dict(urllib.parse.parse_qsl(where.query))
        later = [m for m in self.messages[channel] if int(m["id"]) > int(query["after"])]
        return 200, later[: int(query["limit"])][::-1]
