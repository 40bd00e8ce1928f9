"""The socket server in the box. A background thread does all input and output.

The main thread runs all model-written code and exchanges only objects with the background thread, through queues. So
a callback that its time limit interrupts can't leave half a message behind, and a callback that never ends can't
keep the next worker from connecting.
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
from weavegen.box.mcp import ToolError
from weavegen.box.wire import MAX_BYTES_FROM_BOX, MAX_BYTES_TO_BOX, BrokenFrame, Reader, frame, parse

MAX_RESULTS = 64
"""Results that are kept for workers that request a step again."""
SEND_TIMEOUT_SECONDS = 10.0
FIRST_CONNECTION_SECONDS = 60.0
"""If no worker connects within this time the process exits: the worker that started it was killed."""
REFUSALS: dict[str, tuple[type[Exception], str]] = {
    "ask": (RuntimeError, "the evaluator can't answer: "),
    "complete": (RuntimeError, "the model can't be asked: "),
    "chat": (ValueError, ""),
    "tool": (ToolError, ""),
}
"""The error, and the beginning of its text, if the worker can't answer a request of this kind."""


class SocketServer:
    """Connections to workers, the latest results, and the request of the running operation."""

    def __init__(self, listener: socket.socket, output: OutputCapture):
        self.jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """Operations for the main thread."""
        self.blocks: list[dict[str, Any]] = []
        """The trace's blocks that the process knows. `Tree.blocks` is the same list."""
        self._listener, self._output = listener, output
        self._pid = os.getpid()
        self._started, self._connected = time.monotonic(), False
        self._selector = selectors.DefaultSelector()
        self._readers: dict[socket.socket, Reader] = {}
        self._results: OrderedDict[int, bytes] = OrderedDict()
        self._waiting: dict[int, socket.socket | None] = {}
        """Accepted steps without a result, and the newest connection that waits for each."""
        self._request_in_flight: tuple[int, int, dict[str, Any]] | None = None
        """The request that the running step waits for: step id, number, message."""
        self._request_count = 0
        self._turns: Counter[tuple[int, bool]] = Counter()
        """Requests by step: those for texts apart from those that the worker recognises by their turns."""
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._pending_calls: deque[Callable[[], None]] = deque()
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._request_lock = threading.Lock()

    def start(self) -> None:
        for end in (self._listener, self._wakeup_reader, self._wakeup_writer):
            end.setblocking(False)
        for source in (self._listener, self._wakeup_reader, self._output.read_end):
            self._selector.register(source, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._serve, name="server", daemon=True)
        self.thread.start()

    def descriptors(self) -> set[int]:
        """Its sockets and pipes."""
        own = (self._listener, self._wakeup_reader, self._wakeup_writer, *self._readers)
        return {one.fileno() for one in own} | {self._output.read_end, self._output.write_end}

    def finish(self, step_id: int, result: dict[str, Any]) -> None:
        """Keep the step's result and send it to the connection that waits for it."""
        try:
            data = frame({"step_id": step_id, "result": result}, MAX_BYTES_FROM_BOX)
        except BrokenFrame as error:  # each part is bounded, but there may be many
            message = f"the result as a whole is too large: {error}"
            failure = {"type": "ValueError", "message": message, "traceback": message, "stage": "callback"}
            data = frame({"step_id": step_id, "result": {"error": failure}}, MAX_BYTES_FROM_BOX)
        self._call(lambda: self._finish(step_id, data))

    def request(self, step_id: int, kind: str, body: dict[str, Any]) -> Any:
        """Have the worker answer a request, and wait. No timeout: another worker may answer later.

        Raises an error of REFUSALS if the worker can't, ValueError if there is too much text, RuntimeError in a child.
        """
        if os.getpid() != self._pid:  # it has no thread that would answer
            raise RuntimeError("only the trace's own process can ask: use threads instead of processes")
        refusal, why = REFUSALS[kind]
        try:
            frame(body, MAX_BYTES_FROM_BOX - 100)
        except BrokenFrame as error:
            raise ValueError(f"too much text: {error}") from None
        if kind != "ask":
            self._turns[step_id, kind == "complete"] += 1
            body = {**body, "turn": self._turns[step_id, kind == "complete"]}
        with self._request_lock:
            self._request_count += 1
            number = self._request_count
            message = {kind: {"number": number, **body}}
            self._call(lambda: self._send_request(step_id, number, message))
            while (answers := self._answers.get())["number"] != number:
                continue
        if "values" not in answers:
            raise refusal(f"{why}{answers.get('error')}")
        return answers["values"]

    def _call(self, function: Callable[[], None]) -> None:
        if os.getpid() == self._pid:  # a forked child shares the socket, and must not write to it
            self._pending_calls.append(function)
            try:
                self._wakeup_writer.send(b"!")
            except BlockingIOError:
                return  # a wakeup is pending

    def _serve(self) -> None:
        try:
            while self._connected or time.monotonic() < self._started + FIRST_CONNECTION_SECONDS:
                for key, _ in self._selector.select(None if self._connected else FIRST_CONNECTION_SECONDS):
                    source = key.fileobj
                    if source is self._listener:
                        self._accept()
                    elif source is self._wakeup_reader:
                        self._wakeup_reader.recv(4096)
                        while self._pending_calls:
                            self._pending_calls.popleft()()
                    elif source == self._output.read_end:
                        self._output.drain(65_536)
                    elif isinstance(source, socket.socket) and source in self._readers:
                        self._read(source)
        finally:
            os._exit(70)  # nobody can reach the process without this thread

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.settimeout(SEND_TIMEOUT_SECONDS)
        self._connected = True
        self._readers[connection] = Reader(MAX_BYTES_TO_BOX)
        self._selector.register(connection, selectors.EVENT_READ)
        self._send(connection, frame({"hello": {"blocks": len(self.blocks)}}, MAX_BYTES_FROM_BOX))

    def _read(self, connection: socket.socket) -> None:
        try:
            if not (data := connection.recv(2**18)):
                self._drop(connection)
                return
            for payload in self._readers[connection].feed(data):
                self._handle(connection, parse(payload))
        except (OSError, BrokenFrame, LookupError, TypeError, ValueError):
            self._drop(connection)  # invalid message: the worker sees that the connection was closed

    def _handle(self, connection: socket.socket, message: dict[str, Any]) -> None:
        if "blocks" in message:
            for index, block_type, body in message["blocks"]:
                if index == len(self.blocks):  # two workers may send the same block
                    self.blocks.append({"type": block_type, "index": index, "body": body})
        elif "op" in message:
            self._handle_op(connection, message["op"])
        elif "answers" in message and self._request_in_flight is not None:
            answers = message["answers"]
            if answers["number"] == self._request_in_flight[1]:
                self._request_in_flight = None
                self._answers.put(answers)

    def _handle_op(self, connection: socket.socket, op: dict[str, Any]) -> None:
        step_id = op["step_id"]
        texts = (op["op"], op["subagent"], op["source"])
        if type(step_id) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("not an operation")  # `_read` closes the connection
        if step_id in self._results:
            self._send(connection, self._results[step_id])
        elif step_id in self._waiting:
            before = self._waiting[step_id]
            if before is not None and before is not connection:
                self._send(before, frame({"replaced": True}, MAX_BYTES_FROM_BOX))
                self._drop(before)
            self._waiting[step_id] = connection
            if self._request_in_flight is not None and self._request_in_flight[0] == step_id:
                self._send(connection, frame(self._request_in_flight[2], MAX_BYTES_FROM_BOX))
        else:
            self._waiting[step_id] = connection
            self.jobs.put(op)

    def _send_request(self, step_id: int, number: int, message: dict[str, Any]) -> None:
        if step_id not in self._waiting:
            self._answers.put({"number": number, "error": "no operation is running"})
            return
        self._request_in_flight = (step_id, number, message)
        if (connection := self._waiting[step_id]) is not None:
            self._send(connection, frame(message, MAX_BYTES_FROM_BOX))

    def _finish(self, step_id: int, data: bytes) -> None:
        self._results[step_id] = data
        while len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)
        request = self._request_in_flight
        if request is not None and request[0] == step_id:  # from a thread that outlived its callback
            self._answers.put({"number": request[1], "error": "the operation is over"})
            self._request_in_flight = None
        if (connection := self._waiting.pop(step_id, None)) is not None:
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
        self._waiting |= {step_id: None for step_id, waiting in self._waiting.items() if waiting is connection}
