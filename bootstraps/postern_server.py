"""Serves a site of the framework Postern (postern.py), in a thread, on 127.0.0.1."""

import html
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bootstraps.postern import Answer, Ask, request


def serve(answer: Callable[[Ask], Answer], port: int = 8000) -> ThreadingHTTPServer:
    """Serve answers on 127.0.0.1, in a thread, from now on. An exception is answered with status 500 and its text."""

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
            try:
                found = answer(request(self.command, self.path, body))
            except Exception:  # noqa: BLE001 - a page may raise anything
                found = Answer(f"<pre>{html.escape(traceback.format_exc(limit=-3))}</pre>", 500)
            data = found.text.encode()
            self.send_response(found.status)
            for name, text in {"Content-Type": "text/html; charset=utf-8", **found.headers}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = respond

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: it would be taken for output of the block that is running."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
    return server
