"""The box's end of the socket: one background thread that does all input and output.

The main thread, where everything model-written runs, only ever puts something into a queue. So a callback
that is cut off by its time limit can't leave half a message behind, and one that never ends can't keep the
next worker from attaching itself.
"""

import os
import queue
import selectors
import socket
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

from weavegen.box.guard import OutputCapture
from weavegen.box.wire import FROM_BOX, TO_BOX, BrokenFrame, Reader, frame, parse

REMEMBERED = 64
"""Results that are kept for workers that ask again."""
SEND_TIMEOUT = 10.0
FIRST_CALL = 60.0
"""Seconds for the first worker to call. If none does, the one that started this was killed: nobody knows of it."""


class Line:
    """Connections to workers, the results they may ask for again, and the one operation that is running."""

    def __init__(self, listener: socket.socket, output: OutputCapture):
        self.jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """Operations for the main thread."""
        self.blocks: list[dict[str, Any]] = []
        """The trace as far as it is known here; the tree's list is this very one."""
        self._listener, self._output = listener, output
        self._pid = os.getpid()
        self._born, self._called = time.monotonic(), False
        self._selector = selectors.DefaultSelector()
        self._readers: dict[socket.socket, Reader] = {}
        self._results: OrderedDict[int, bytes] = OrderedDict()
        self._waiting: dict[int, socket.socket | None] = {}
        """Steps that were taken on and not answered yet, and the newest connection that asked for each."""
        self._ask: tuple[int, int, dict[str, Any]] | None = None
        """What the running step waits for the worker to answer: step id, number, message."""
        self._asked = 0
        self._turns: Counter[int] = Counter()
        """Exchanges of messages by step, which tell a repetition from a new one."""
        self._answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._calls: deque[Callable[[], None]] = deque()
        self._bell, self._ring = socket.socketpair()
        self._ask_lock = threading.Lock()

    def start(self) -> None:
        self._listener.setblocking(False)
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        for source in (self._listener, self._bell, self._output.end):
            self._selector.register(source, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="line", daemon=True).start()

    # ------------------------------------------------------------------------ called by the main thread

    def finish(self, step_id: int, result: dict[str, Any]) -> None:
        """Remember the step's result and answer whoever waits for it."""
        try:
            data = frame({"step_id": step_id, "result": result}, FROM_BOX)
        except BrokenFrame as error:  # every part of it is bounded, but there are many parts
            message = f"all that it brought is too much: {error}"
            failure = {"type": "ValueError", "message": message, "traceback": message, "stage": "callback"}
            data = frame({"step_id": step_id, "result": {"error": failure}}, FROM_BOX)
        self._call(lambda: self._finish(step_id, data))

    def ask(self, step_id: int, prompts: list[str]) -> list[tuple[float, float]]:
        """Have the worker ask the model."""
        answers = self._request(step_id, "ask", {"prompts": prompts})
        if "values" not in answers:
            raise RuntimeError(f"the evaluator can't answer: {answers.get('error')}")
        values = answers["values"]
        if len(values) != len(prompts):
            raise ValueError(f"{len(prompts)} questions were asked, {len(values)} answered")
        return [(float(yes), float(no)) for yes, no in values]

    def chat(self, step_id: int, request: dict[str, Any]) -> Any:
        """Have the worker put something into a channel, or read it. Raises ValueError if that can't be done."""
        self._turns[step_id] += 1
        answers = self._request(step_id, "chat", {**request, "turn": self._turns[step_id]})
        if "values" not in answers:
            raise ValueError(str(answers.get("error")))
        return answers["values"]

    def _request(self, step_id: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the worker. Waits for as long as it takes: for the next worker, if this one dies."""
        try:
            frame(body, FROM_BOX - 100)
        except BrokenFrame as error:
            raise ValueError(f"too much text: {error}") from None
        with self._ask_lock:
            self._asked += 1
            number = self._asked
            message = {kind: {"number": number, **body}}
            self._call(lambda: self._put_ask(step_id, number, message))
            while True:
                answered, answers = self._answers.get()
                if answered == number:
                    return answers

    def _call(self, function: Callable[[], None]) -> None:
        if os.getpid() == self._pid:  # a forked child shares the socket, and may not speak on it
            self._calls.append(function)
            try:
                self._ring.send(b"!")
            except BlockingIOError:
                return  # it rings already

    # ----------------------------------------------------------------------------- the background thread

    def _run(self) -> None:
        try:
            while self._called or time.monotonic() < self._born + FIRST_CALL:
                for key, _ in self._selector.select(None if self._called else FIRST_CALL):
                    source = key.fileobj
                    if source is self._listener:
                        self._accept()
                    elif source is self._bell:
                        self._bell.recv(4096)
                        while self._calls:
                            self._calls.popleft()()
                    elif source == self._output.end:
                        self._output.drain(65_536)
                    elif isinstance(source, socket.socket) and source in self._readers:
                        self._read(source)
        finally:
            os._exit(70)  # without this thread nobody can reach the process: let it be found dead

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.settimeout(SEND_TIMEOUT)
        self._called = True
        self._readers[connection] = Reader(TO_BOX)
        self._selector.register(connection, selectors.EVENT_READ)
        self._send(connection, frame({"hello": {"blocks": len(self.blocks)}}, FROM_BOX))

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(2**18)
            if not data:
                self._drop(connection)
                return
            for payload in self._readers[connection].feed(data):
                self._take(connection, parse(payload))
        except (OSError, BrokenFrame, LookupError, TypeError, ValueError):
            self._drop(connection)  # it spoke nonsense: the worker sees its line cut, and says so

    def _take(self, connection: socket.socket, message: dict[str, Any]) -> None:
        if "blocks" in message:
            for index, block_type, body in message["blocks"]:
                if index == len(self.blocks):  # one that two workers sent is known already
                    self.blocks.append({"type": block_type, "index": index, "body": body})
        elif "op" in message:
            self._take_op(connection, message["op"])
        elif "answers" in message and self._ask is not None:
            answers = message["answers"]
            if answers["number"] == self._ask[1]:
                self._ask = None
                self._answers.put((answers["number"], answers))

    def _take_op(self, connection: socket.socket, op: dict[str, Any]) -> None:
        step_id = op["step_id"]
        texts = (op["op"], op["subagent"], op["source"])
        if type(step_id) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("no operation")  # which ends the connection, and not this thread
        if step_id in self._results:
            self._send(connection, self._results[step_id])
        elif step_id in self._waiting:
            before = self._waiting[step_id]
            if before is not None and before is not connection:
                self._send(before, frame({"replaced": True}, FROM_BOX))
                self._drop(before)
            self._waiting[step_id] = connection
            if self._ask is not None and self._ask[0] == step_id:
                self._send(connection, frame(self._ask[2], FROM_BOX))
        else:
            self._waiting[step_id] = connection
            self.jobs.put(op)

    def _put_ask(self, step_id: int, number: int, message: dict[str, Any]) -> None:
        if step_id not in self._waiting:
            self._answers.put((number, {"error": "no operation is running"}))
            return
        self._ask = (step_id, number, message)
        connection = self._waiting[step_id]
        if connection is not None:
            self._send(connection, frame(message, FROM_BOX))

    def _finish(self, step_id: int, data: bytes) -> None:
        self._results[step_id] = data
        while len(self._results) > REMEMBERED:
            self._results.popitem(last=False)
        if self._ask is not None and self._ask[0] == step_id:  # asked by a thread that outlived its callback
            self._answers.put((self._ask[1], {"error": "the operation is over"}))
            self._ask = None
        connection = self._waiting.pop(step_id, None)
        if connection is not None:
            self._send(connection, data)

    def _send(self, connection: socket.socket, data: bytes) -> None:
        try:
            connection.sendall(data)
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        if self._readers.pop(connection, None) is not None:
            self._selector.unregister(connection)
            connection.close()
        for step_id, waiting in self._waiting.items():
            if waiting is connection:
                self._waiting[step_id] = None
