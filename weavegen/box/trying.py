"""Tries candidates of a block: each runs in a copy of this process, and leaves nothing behind.

A copy is a fork. Servers in threads are paused in this process, and serve in the copy, on the same listening sockets.
The copy asks the evaluator through this process; its messages reach no channel. When it has ended, its processes are
killed, and the files that it changed are restored. `obstacle` says what can't be copied.
"""

import contextlib
import gc
import os
import re
import signal
import socket
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from json import loads
from typing import TYPE_CHECKING, Any

from weavegen.box import api, guard, weave_agent
from weavegen.box.memory import hide_memory
from weavegen.box.server import REFUSALS
from weavegen.box.wire import MAX_BYTES_FROM_BOX, BrokenFrame, frame, parse, read_frame, write

if TYPE_CHECKING:
    from weavegen.box.runner import Runner

MAX_FILES, MAX_BYTES = 5_000, 64 * 2**20
"""Files and folders in the writable folders, and bytes of them, that are copied."""
OPERATIONS = 3  # that a copy runs for an action, each with its own time: the block, the evaluations, the views
GRACE_SECONDS = 1.0
PAUSE_SECONDS = 0.2
"""Time for servers to finish the requests that they handle."""
FILES_CLOCK = 5  # CLOCK_REALTIME_COARSE, from which file systems take the times of changes


class NotTried(BaseException):
    """A candidate needs what a copy can't have. The message says what."""


class Serving:
    """A server in a thread, which can be paused."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.busy, self.go = threading.Lock(), threading.Event()
        self.go.set()

    def pause(self) -> bool:
        """Stop handling requests. Returns whether the last one was done in time."""
        self.go.clear()
        if done := self.busy.acquire(timeout=PAUSE_SECONDS):
            self.busy.release()
        return done


servers: dict[Any, Serving] = {}
serve, handle = socketserver.BaseServer.serve_forever, socketserver.BaseServer._handle_request_noblock  # type: ignore[attr-defined]


def serve_forever(self: Any, poll_interval: float = 0.5) -> None:
    """`socketserver.BaseServer.serve_forever`, which can be paused."""
    servers[self] = Serving()
    try:
        serve(self, poll_interval)
    finally:
        del servers[self]


def handle_request(self: Any) -> None:
    """Handle the waiting request. If the server is paused, return after the pause, so that its loop polls again."""
    if (own := servers.get(self)) is None:
        handle(self)
        return
    with own.busy:
        if own.go.is_set():
            handle(self)
    own.go.wait()


def install() -> None:
    """Let servers be paused. Call it before any server starts."""
    socketserver.BaseServer.serve_forever = serve_forever  # type: ignore[method-assign]
    socketserver.BaseServer._handle_request_noblock = handle_request  # type: ignore[attr-defined]


@contextlib.contextmanager
def paused() -> Iterator[bool]:
    """Pause all servers in the body. Yields whether all have stopped. Connections of copies are dropped at the end."""
    held = dict(servers)
    try:
        stopped = [own.pause() for own in held.values()]
        yield all(stopped)
    finally:
        for server, own in held.items():
            drop_connections(server.socket)
            own.go.set()


def drop_connections(listener: socket.socket) -> None:
    """Close the connections that wait to be accepted: their clients were in a copy, which is gone."""
    with contextlib.suppress(OSError):
        timeout = listener.gettimeout()
        listener.setblocking(False)
        try:
            while True:
                listener.accept()[0].close()
        finally:
            listener.settimeout(timeout)


def restart_servers() -> None:
    """Serve again in a copy, whose threads are gone."""
    for server in list(servers):
        del servers[server]
        server._BaseServer__is_shut_down = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Files:
    """The files of some folders as they are now."""

    def __init__(self, folders: list[str]) -> None:
        """Raises NotTried if there are too many."""
        self.folders = folders
        self.kept: dict[str, tuple[tuple[int, ...], int, bytes | str | None]] = {}
        """By path: its mark, its modification time, and its content (None if it is neither a file nor a link)."""
        total = 0
        for path, status in self.walk():
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
            if total > MAX_BYTES or len(self.kept) >= MAX_FILES:
                raise NotTried(f"its folders have more than {MAX_FILES:,} files or {MAX_BYTES >> 20} MB")
            self.kept[path] = (mark(status), status.st_mtime_ns, content(path, status))
        self.positions = {fd: os.lseek(fd, 0, os.SEEK_CUR) for fd in descriptors(stat.S_ISREG)}

    def walk(self, opening: bool = False) -> Iterator[tuple[str, os.stat_result]]:
        """Every path below the folders with its status, folders before their contents. `opening`: chmod closed folders.

        What is mounted below them is left out: nothing can change it.
        """
        devices = {os.stat(folder).st_dev for folder in self.folders}
        waiting = list(self.folders)
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_dev not in devices:
                            continue
                        if stat.S_ISDIR(status.st_mode):
                            if opening and status.st_mode & 0o700 != 0o700:
                                os.chmod(entry.path, 0o700)
                                status = os.lstat(entry.path)
                            waiting.append(entry.path)
                        yield entry.path, status

    def restore(self) -> None:
        """Write back what has changed, and remove what is new."""
        now = dict(self.walk(opening=True))
        for path in sorted(now.keys() - self.kept.keys(), reverse=True):  # the contents of a folder before the folder
            with contextlib.suppress(OSError):
                (os.rmdir if stat.S_ISDIR(now[path].st_mode) else os.unlink)(path)
        if left := [path for path in now.keys() - self.kept.keys() if os.path.lexists(path)]:
            # A path may be too long for the system, but not for rm.
            subprocess.run(
                ["rm", "-rf", "--", *sorted(left, key=len)[:99]], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        changed = [path for path, (held, *_) in self.kept.items() if path not in now or mark(now[path]) != held]
        for path in sorted(changed):
            with contextlib.suppress(OSError):
                write_back(path, self.kept[path][0][3], self.kept[path][2], now.get(path))
        for path in sorted(changed, reverse=True):
            (_, _, _, mode), modified, held = self.kept[path]
            with contextlib.suppress(OSError):
                if not stat.S_ISLNK(mode):
                    os.chmod(path, stat.S_IMODE(mode))
                    os.utime(path, ns=(modified, modified))
                self.kept[path] = (mark(os.lstat(path)), modified, held)
        for fd, position in self.positions.items():
            with contextlib.suppress(OSError):
                os.lseek(fd, position, os.SEEK_SET)


def mark(status: os.stat_result) -> tuple[int, ...]:
    """Inode, size, time of the last change and mode of a file."""
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    changed = 0 if stat.S_ISDIR(status.st_mode) else status.st_ctime_ns
    return status.st_ino, size, changed, status.st_mode


def content(path: str, status: os.stat_result) -> bytes | str | None:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise NotTried(f"{path} can't be read: {error.strerror}") from None


def write_back(path: str, mode: int, held: bytes | str | None, status: os.stat_result | None) -> None:
    """Restore a path's content. A file that still exists is written in place, for processes that have it open."""
    if status is not None and stat.S_IFMT(status.st_mode) != stat.S_IFMT(mode):
        (os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink)(path)
        status = None
    if isinstance(held, str):
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.symlink(held, path)
    elif isinstance(held, bytes):
        if status is not None:
            os.chmod(path, 0o600)
        with open(path, "wb") as file:
            file.write(held)
    elif stat.S_ISDIR(mode) and status is None:
        os.mkdir(path)


def descriptors(wanted: Any) -> list[int]:
    """Open descriptors, above those of the terminal, for whose mode `wanted` is true."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and wanted(os.fstat(int(name)).st_mode):
                found.append(int(name))
    return found


def processes() -> list[int]:
    """The other processes of the box, without the one that reaps orphans."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]


def obstacle(runner: "Runner") -> str | None:
    """Why this process can't be copied; None if it can."""
    if runner.in_image:
        return "its files are those of an image, which a copy would share"
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        return "its network, or its machine, is not its own"
    if processes():
        return "it has processes of its own, which a copy would share"
    usual = {threading.main_thread(), runner.server.thread, *(own.thread for own in servers.values())}
    deadline = time.monotonic() + PAUSE_SECONDS
    for thread in threading.enumerate():
        if thread not in usual:
            thread.join(max(deadline - time.monotonic(), 0.0))
            if thread.is_alive():
                return f"it has a thread, {thread.name}, which a copy would not have"
    known = runner.server.descriptors().union(server.fileno() for server in servers)
    if set(descriptors(lambda mode: stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode))) - known:
        return "it has an open connection, which a copy would share"
    return None


class Relay:
    """In a copy: takes the place of the socket server. The original process asks the model."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        self.sent, self.opened = 0, set[Any]()
        self.lock = threading.Lock()

    def request(self, step_id: int, kind: str, body: dict[str, Any]) -> Any:
        """Let the original process ask. Messages are read, but none is really sent. Raises NotTried for MCP."""
        if kind == "tool":
            raise NotTried("it calls a tool of an MCP server")
        if kind == "chat" and body.get("do") != "read":
            self.opened.add(body.get("channel"))
            self.sent += 1
            return 2**31 + self.sent
        body = {**body, "wait": 0} if kind == "chat" else body
        with self.lock:
            write(self.writer, frame({kind: body}, MAX_BYTES_FROM_BOX))
            answer = parse(read_frame(self.reader, MAX_BYTES_FROM_BOX))
        if "error" in answer and kind == "chat" and body.get("channel") in self.opened:
            return []  # it is open in the copy alone
        if "error" in answer:
            raise REFUSALS[kind][0](answer["error"])
        return answer["values"]


class Output:
    """In a copy: captures what is printed, in an unnamed file."""

    def __init__(self, file: int) -> None:
        self.file, self.taken = file, 0
        guard.redirect(file)

    def take(self) -> str:
        guard.flush()
        data = os.pread(self.file, 4 * guard.MAX_OUTPUT_CHARS, self.taken)
        self.taken = os.fstat(self.file).st_size
        return data.decode("utf-8", "backslashreplace")[: guard.MAX_OUTPUT_CHARS]


def try_all(runner: "Runner", op: dict[str, Any]) -> list[dict[str, Any]]:
    """Try each candidate of an operation. Returns a `steps.Executed` for each. Raises NotTried if none can be tried."""
    candidates: list[str] = loads(op["source"])
    seconds = float(op["seconds"]) / (OPERATIONS * max(len(candidates), 1))
    with paused() as stopped:
        why = obstacle(runner) if stopped else "it has a server that does not stop"
        if why is not None:
            raise NotTried(why)
        files = Files([runner.app, *(folder for folder in ("/tmp", "/dev/shm") if os.path.isdir(folder))])
        gc.freeze()  # a collection in a copy would copy all memory
        hide_memory()  # from the copies: they are of the same user
        try:
            with tempfile.TemporaryFile(buffering=0) as printed:
                ops = ({**op, "source": source, "seconds": seconds} for source in candidates)
                return [try_one(runner, each, files, printed.fileno()) for each in ops]
        finally:
            gc.unfreeze()
            hide_memory(bool(processes()))  # a process that outlived the killing must not reach it later


def try_one(runner: "Runner", op: dict[str, Any], files: Files, printed: int) -> dict[str, Any]:
    newest = max((held[2] for held, *_ in files.kept.values()), default=0)
    while time.clock_gettime_ns(FILES_CLOCK) <= newest < time.time_ns():
        time.sleep(0.001)  # until a change gets a later time than any file has: else it would not be seen
    began = time.monotonic()
    answers, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run_copy(runner, op, answers[0], told[1], printed)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it happened in the copy alone
            write(told[1], frame({"result": lost(f"{type(error).__name__}: {error}")}, MAX_BYTES_FROM_BOX))
        finally:
            os._exit(0)
    os.close(answers[0])
    os.close(told[1])
    try:
        result = listen(runner, told[0], answers[1], began + OPERATIONS * float(op["seconds"]) + GRACE_SECONDS)
    finally:
        os.close(told[0])
        os.close(answers[1])
        end_processes(pid)
        files.restore()
        os.ftruncate(printed, 0)
        os.lseek(printed, 0, os.SEEK_SET)
    result["seconds"] = round(time.monotonic() - began, 6)
    return result


def listen(runner: "Runner", told: int, answers: int, deadline: float) -> dict[str, Any]:
    """Answer a copy until it gives its result."""
    while True:
        try:
            message = parse(read_frame(told, MAX_BYTES_FROM_BOX, deadline))
        except TimeoutError:
            return lost("it did not end in time")
        except (EOFError, BrokenFrame) as error:
            return lost(str(error) or "its process ended")
        if isinstance(message.get("result"), dict):
            return dict(message["result"])
        asked = time.monotonic()
        try:
            [(kind, body)] = message.items()
            answer = {"values": runner.request(kind, body)}
        except Exception as error:  # noqa: BLE001 - the copy's code may have sent anything
            answer = {"error": str(error)}
        deadline += time.monotonic() - asked
        with contextlib.suppress(OSError):
            write(answers, frame(answer, MAX_BYTES_FROM_BOX), deadline)


def lost(why: str) -> dict[str, Any]:
    """The result of a copy that returned none: as if the block had killed its process."""
    return {"error": {"type": "EnvironmentFailure", "message": why, "traceback": why, "stage": "process"}}


def end_processes(child: int) -> None:
    """Kill a copy, and every process that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := processes()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def run_copy(runner: "Runner", op: dict[str, Any], answers: int, told: int, printed: int) -> None:
    """In the copy: run the block; after an action the evaluations and the views, after an evaluation the tick's."""
    hide_memory(False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory is short, the copy is killed, not the original
    for descriptor in runner.server.descriptors():
        os.close(descriptor)
    mark_mapped()
    runner.pid, runner.clock = os.getpid(), guard.Clock()
    runner.output = Output(printed)  # type: ignore[assignment]
    runner.server = Relay(answers, told)  # type: ignore[assignment]
    api.work = api.delegate = weave_agent.write = waits  # type: ignore[assignment]
    restart_servers()
    result = runner.execute({**op, "op": "run"})
    error = result.get("error")
    if error is not None and error["type"] == NotTried.__name__:
        result = {"not_tried": error["message"]}
    elif error is None and op.get("type") in ("action", "evaluation"):
        done = runner.execute({**op, "op": "evaluate", "source": ""}).get("evaluations", [])
        result["evaluations"] = [one for one in done if one.get("error", {}).get("type") != NotTried.__name__]
        if op["type"] == "action":
            result["views"] = runner.execute({**op, "op": "begin"}).get("views", [])
    write(told, frame({"result": result}, MAX_BYTES_FROM_BOX))


def mark_mapped() -> None:
    """Change the times of files that this process maps into its memory, now and later: writing there does not."""

    def mark(place: Any) -> None:
        with contextlib.suppress(OSError):
            os.utime(place)

    sys.addaudithook(lambda event, values: mark(values[0]) if event == "mmap.__new__" and values[0] >= 0 else None)
    with open("/proc/self/maps") as file:
        for place in set(re.findall(r"^\S+ .w.s \S+ \S+ \S+ +(/.*)$", file.read(), re.MULTILINE)):
            mark(place)


def waits(*arguments: Any) -> Any:
    raise NotTried("it waits for another agent")
