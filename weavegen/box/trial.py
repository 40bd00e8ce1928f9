"""Evaluates programs. Each program runs in a process of its own that can only compute; another process scores it.

    evaluate_programs()   called by the runner; starts one process per operation and sends it the request
    └─ main()             forks a process for each program before it reads the request, then an evaluator for each
       ├─ run_program()   the program's function
       └─ run_evaluator() tests and evaluator; exchanges calls and answers with run_program() through a socket

A program may be broken or hostile. So that it can't fake its score, it never shares a process with the evaluator:
the evaluator calls the program through a socket, with plain data, and writes its verdict for `main` to another one,
which the program's process does not have. Both processes first give up everything but memory, the clock and their
sockets (`confine`), so they can reach neither each other nor the runner. Printed text is dropped. A program
that exits, never ends or takes all memory fails only its own trial.

Not guaranteed: that a program does its work honestly. It may detect that it is tested, remember earlier calls, or
return memorised answers for known instances. Whether a score is meaningful depends on the evaluator. Only plain data
can be passed (see `pack`), and changes that a function makes to its arguments stay in its process.
"""

import builtins
import contextlib
import importlib
import io
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

from weavegen.box.confine import confine
from weavegen.box.wire import frame, read_frame, write

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that `weavegen` can be imported from."""
MODULES = (
    "__future__", "_strptime", "base64", "bisect", "calendar", "cmath", "collections", "copy", "csv", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "html", "io", "itertools",
    "json", "math", "operator", "random", "re", "statistics", "string", "textwrap", "time", "typing", "unicodedata",
    "urllib.parse",
)  # fmt: skip
"""Modules that programs and evaluators can import. `main` loads them: a confined process can't open files."""
MAX_PROGRAMS = 16
"""Programs per operation."""
MAX_SCORES = 100
"""Instances that an evaluator may score separately."""
MAX_ERROR_CHARS = 600
"""Characters kept of an error message."""
MAX_MESSAGE_BYTES = 4 * 2**20
"""Bytes of a call or an answer."""
STARTUP_SECONDS = 2.0
"""Seconds of an operation that are reserved for starting processes."""
MAIN = "import sys; sys.path.append(sys.argv[1]); from weavegen.box.trial import main; main(int(sys.argv[2]))"


def evaluate_programs(source: str, seconds: float) -> list[dict[str, Any]]:
    """Evaluate programs. Returns a verdict for each: `{"success", "score", "scores", "error"}`.

    `source` is JSON: `name` of the function, `programs` (sources that define it), `tests` (source that defines
    `test(function)`, or ""), `evaluator` (source that defines `evaluate(function)`, or "": then there are no
    scores), `seconds` per program. No program gets more than an equal share of the operation's `seconds`.
    """
    request = json.loads(source)
    programs = request["programs"]
    if not 0 < len(programs) <= MAX_PROGRAMS:
        raise ValueError(f"{len(programs)} programs: give 1 to {MAX_PROGRAMS}")
    request["seconds"] = min(float(request["seconds"]), max(seconds - STARTUP_SECONDS, 0.1) / len(programs))
    process = subprocess.Popen(
        [sys.executable, "-sSPB", "-c", MAIN, ROOT, str(len(programs))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/",
        env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
    )  # fmt: skip
    try:
        answer, _ = process.communicate(json.dumps(request).encode())
        return list(json.loads(answer))
    finally:  # also when the operation's time is up
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(count: int) -> None:
    """Read a request from stdin, evaluate its programs one after another, write the verdicts to stdout."""
    for name in MODULES:
        importlib.import_module(name)
    # The programs' processes are forked before the request is read: the tests and the evaluator are not in them.
    processes = [fork_confined(run_program) for _ in range(count)]
    request = json.loads(sys.stdin.buffer.read())
    verdicts = []
    for (pid, calls), source in zip(processes, request["programs"], strict=True):
        verdicts.append(evaluate_program(pid, calls, request, source))
        os.close(calls)
    sys.stdout.write(json.dumps(verdicts))


def evaluate_program(program_pid: int, calls: int, request: dict[str, Any], source: str) -> dict[str, Any]:
    """Evaluate a program. Both of its processes have ended when this returns. `calls`: the socket to the program's."""
    seconds, function = float(request["seconds"]), RemoteFunction(str(request["name"]), calls)
    evaluator_pid, verdicts = fork_confined(lambda own: run_evaluator(request, source, function, own), calls)
    try:
        return verdict(**receive(verdicts, time.monotonic() + seconds))
    except TimeoutError:
        return verdict(f"it took longer than {seconds:.3g} seconds")
    except (EOFError, TypeError, ValueError, RecursionError):  # the evaluator may be hostile, too
        return verdict("the evaluator's process ended or gave an invalid verdict: does it take too much memory?")
    finally:
        os.close(verdicts)
        for pid in (program_pid, evaluator_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def verdict(error: object, value: object = None) -> dict[str, Any]:
    """Make a verdict from an error or from the evaluator's `value`. `value` is None without an evaluator."""
    score, scores = (None, []) if error is not None or value is None else parse_scores(value)
    error = None if error is None else str(error)[:MAX_ERROR_CHARS]
    return {"success": error is None, "score": score, "scores": scores, "error": error}


def fork_confined(work: Callable[[int], None], *kept: int) -> tuple[int, int]:
    """Fork a confined process with a socket to this one and the descriptors `kept`. Returns its pid and our socket.

    It calls `work` with its own socket, and exits.
    """
    ours, theirs = (end.detach() for end in socket.socketpair())
    if pid := os.fork():
        os.close(theirs)
        return pid, ours
    try:
        kept = (*kept, theirs)
        highest = 3 * MAX_PROGRAMS + 64
        for first, last in zip((-1, *sorted(kept)), (*sorted(kept), highest), strict=True):
            os.closerange(first + 1, last)
        confine()
        random.seed(0)
        sys.stdout = sys.stderr = Discard()
        work(theirs)
    except BaseException:  # noqa: BLE001 - the reader of the socket sees that it was closed
        os._exit(1)
    os._exit(0)


def run_program(calls: int) -> None:
    """In the program's process: define the function, then answer calls until the process is killed."""
    begin = receive(calls)
    namespace = sys.modules.setdefault("program", types.ModuleType("program")).__dict__  # dataclasses look there

    def define() -> None:
        exec(compile(begin["source"], "<program>", "exec", dont_inherit=True), namespace)
        if not callable(namespace.get(begin["name"])):
            raise NameError(f"the program defines no function {begin['name']}")

    send(calls, call_outcome(define))
    while True:
        arguments, named = unpack(receive(calls))
        send(calls, call_outcome(lambda: namespace[begin["name"]](*arguments, **named)))  # noqa: B023 - called at once


def call_outcome(work: Callable[[], object]) -> dict[str, Any]:
    """Describe the result of a call, or the exception that it raised, as JSON."""
    try:
        return {"value": pack(work())}
    except BaseException as error:  # noqa: BLE001 - the program may raise anything
        return {"raised": type(error).__name__, "message": error_text(error), "line": line_number("<program>", error)}


class ProgramLost(BaseException):
    """The program's process no longer answers. Not an Exception, so that an evaluator does not catch it."""


class RemoteFunction:
    """The program's function. Tests and evaluators call it like a function of their own process."""

    def __init__(self, name: str, calls: int) -> None:
        self.__name__ = name
        self.lost = False
        self._calls = calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self.ask(pack((args, kwargs)))
        try:
            if "value" in answer:
                return unpack(answer["value"])
            raised, message, line = answer["raised"], str(answer["message"]), answer["line"]
        except (LookupError, TypeError, ValueError, RecursionError):
            raise self.gone("its process gave an invalid answer") from None
        kind = getattr(builtins, str(raised), None)
        place = f" (line {int(line)} of the program)" if line else ""
        error: Exception = RuntimeError(f"{raised}{message and ': '}{message}{place}")
        if isinstance(kind, type) and issubclass(kind, Exception):
            with contextlib.suppress(TypeError):  # a constructor that does not take one text
                error = kind(message + place)
        raise error

    def ask(self, call: Any) -> Any:
        try:
            send(self._calls, call)
            return receive(self._calls)
        except (OSError, EOFError, ValueError, RecursionError) as error:
            ended = isinstance(error, OSError | EOFError)
            raise self.gone("its process ended" if ended else "its process gave an invalid answer") from None

    def gone(self, why: str) -> ProgramLost:
        self.lost = True
        return ProgramLost(why)


def run_evaluator(request: dict[str, Any], source: str, function: RemoteFunction, verdicts: int) -> None:
    """In the evaluator's process: define the program, test it, evaluate it, and write the verdict."""
    stage, score, error = "program", None, None
    try:
        defined = function.ask({"name": request["name"], "source": source})
        if "raised" in defined:
            line = f" (line {defined['line']} of the program)" if defined["line"] else ""
            raise ProgramLost(f"{defined['raised']}: {defined['message']}{line}")  # the program's own claim
        for stage, name in (("test", "test"), ("evaluator", "evaluate")):
            code = str(request["tests" if stage == "test" else "evaluator"])
            if not code.strip():
                continue
            namespace = sys.modules.setdefault(stage, types.ModuleType(stage)).__dict__
            exec(compile(code, f"<{stage}>", "exec", dont_inherit=True), namespace)
            if not callable(namespace.get(name)):
                raise NameError(f"it defines no function {name}")
            value = namespace[name](function)
            if function.lost:
                raise ProgramLost("its process ended")
            if stage == "evaluator":
                score = parse_scores(value)[1]
    except ProgramLost as lost:
        error = f"program: {lost}"
    except BaseException as failed:  # noqa: BLE001 - the evaluator is model-written, too
        at = line_number(f"<{stage}>", failed)
        shown = str(request["tests" if stage == "test" else "evaluator"]).splitlines()[at - 1 : at]
        place = f" (line {at} of the {stage}: {shown[0].strip()})" if at and shown else ""
        error = f"{stage}: {': '.join(filter(None, (type(failed).__name__, error_text(failed))))}{place}"
    send(verdicts, {"error": error, "value": score})


def parse_scores(value: object) -> tuple[float, list[float]]:
    """Return the mean score, and the score of each instance. Raises ValueError, TypeError."""
    scores: Any = value if isinstance(value, list | tuple) else [value]
    if not 0 < len(scores) <= MAX_SCORES:
        raise ValueError(f"it gives {len(scores)} numbers: give one, or a list of 1 to {MAX_SCORES}")
    numbers = [float(score) for score in scores]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"its score is {value!r:.100}: give finite numbers")
    return math.fsum(numbers) / len(numbers), numbers


class Discard(io.TextIOBase):
    """Drops what is printed: a confined process has no descriptor to print to."""

    def write(self, text: str, /) -> int:
        return len(text)


def error_text(error: BaseException) -> str:
    try:
        return (error.msg if isinstance(error, SyntaxError) else str(error))[:MAX_ERROR_CHARS]
    except BaseException:  # noqa: BLE001 - a class of the program may raise anything
        return ""


def line_number(file: str, error: BaseException) -> int:
    """Return the line of `file` nearest to where an error was raised; 0 if the traceback has none."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 0
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else 0


def pack(value: Any) -> Any:
    """Encode plain data as JSON that keeps tuples, sets, bytes and all keys. Raises TypeError for other data."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = [pack(item) for item in value]
        return items if isinstance(value, list) else {"t" if isinstance(value, tuple) else "s": items}
    if isinstance(value, dict):
        return {"d": [[pack(key), pack(item)] for key, item in value.items()]}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    usable = "None, bool, int, float, str, bytes, list, tuple, set, dict"
    raise TypeError(f"{type(value).__name__} can't be passed: use {usable}")


def unpack(value: Any) -> Any:
    """Decode what `pack` returned. Raises LookupError, TypeError or ValueError for any other value."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    match kind:
        case "t":
            return tuple(unpack(item) for item in inner)
        case "s":
            return {unpack(item) for item in inner}
        case "d":
            return {unpack(key): unpack(item) for key, item in inner}
        case "b":
            return bytes.fromhex(inner)
    raise ValueError(f"unknown kind of data: {kind!r:.20}")


def send(channel: int, value: Any) -> None:
    """Write a frame with a JSON value. Raises OSError if the reader is gone, ValueError if it is too long."""
    write(channel, frame(value, MAX_MESSAGE_BYTES, allow_nan=True))


def receive(channel: int, deadline: float | None = None) -> Any:
    """Read a JSON value. Raises EOFError, ValueError, and TimeoutError after `deadline` (of time.monotonic)."""
    return json.loads(read_frame(channel, MAX_MESSAGE_BYTES, deadline))
