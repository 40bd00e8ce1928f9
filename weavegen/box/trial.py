"""Programs on trial: each in a process of its own that can do nothing but compute, evaluated from another one.

    in the runner                   this file as a script, once an operation       a process for each program

    evaluate_programs() ─request──► main() ─forks, before it reads the request──► play(): the program's function
                        ◄─verdicts─        ─forks, one program after another────► judge(): tests and evaluator
                                                                     play() ◄── calls, answers ──► judge()

A program may be hostile, or just broken. So that it can't fake its score, it never shares a process with what
scores it: the evaluator calls it through a pipe, with plain data, and its verdict goes to `main` through another
pipe that the program does not have. Both processes give up everything but memory, the clock and their pipes first
(`confine`): a filter of system calls lets them open, start, signal and send nothing, so they reach neither each
other nor the runner. What is printed goes nowhere but into `output`. A program that ends its process, loops for
ever, or takes all memory loses its own trial, no other one.

Not promised: that a program is honest about what it is called for. It may notice that it is being tested, remember
earlier calls, or answer by heart what it was told of the instances. That a score means something is up to the
evaluator. Only plain data can be handed over (see `pack`), and changes that a function makes to its arguments stay
in its process.

Beside it lies only the standard library: it runs in the box, where weavegen is not installed.
"""

import builtins
import contextlib
import ctypes
import importlib
import io
import json
import math
import os
import platform
import random
import resource
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

MODULES = (
    "_strptime", "base64", "bisect", "calendar", "cmath", "collections", "copy", "csv", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "html", "io", "itertools", "json",
    "math", "operator", "random", "re", "statistics", "string", "textwrap", "time", "typing", "unicodedata",
    "urllib.parse",
)  # fmt: skip
"""What a program, a test and an evaluator can import: they can't open files, so these are loaded before."""
MEMORY = 256 * 2**20
"""Bytes of address space of each process."""
MOST = 16
"""Programs in one operation."""
MOST_SCORES = 100
"""Instances that an evaluator may tell apart."""
OUTPUT = 1_000
"""Characters of what a program prints that are kept."""
TEXT = 600
"""Characters of an error."""
FRAME = 4 * 2**20
"""Bytes of one call or answer."""
STARTING = 2.0
"""Of an operation's seconds, those that are not the programs'."""


# ------------------------------------------------------------------------------------ called by the runner


def evaluate_programs(source: str, seconds: float) -> list[dict[str, Any]]:
    """Try programs; a verdict each: `{"success", "score", "scores", "error", "output"}`.

    `source` is JSON: `name` of the function, `programs` (sources that define it), `tests` (source that defines
    `test(function)`, or ""), `evaluator` (source that defines `evaluate(function)`, or "": then there are no
    scores), `seconds` that each may take. None takes more than its share of the operation's `seconds`.
    """
    request = json.loads(source)
    programs = request["programs"]
    if not 0 < len(programs) <= MOST:
        raise ValueError(f"{len(programs)} programs: give 1 to {MOST}")
    request["seconds"] = min(float(request["seconds"]), max(seconds - STARTING, 0.1) / len(programs))
    process = subprocess.Popen(
        [sys.executable, "-sSPB", __file__, str(len(programs))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/",
        env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
    )  # fmt: skip
    try:
        said, _ = process.communicate(json.dumps(request).encode())
        verdicts: list[dict[str, Any]] = json.loads(said)
    finally:  # also where the operation's time is up
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return verdicts


# ---------------------------------------------------------------------------- the script: forks and keeps time


def main(count: int) -> None:
    """Read a request, try its programs one after another, write the verdicts."""
    for name in MODULES:
        importlib.import_module(name)
    # The programs' processes are there before the request is read: they have nothing of test and evaluator.
    players = [start_player() for _ in range(count)]
    request = json.loads(sys.stdin.buffer.read())
    verdicts = []
    for player, source in zip(players, request["programs"], strict=True):
        verdicts.append(tried(player, request, source))
        for descriptor in player[1:]:
            os.close(descriptor)
    sys.stdout.write(json.dumps(verdicts))


def start_player() -> tuple[int, int, int]:
    """A process for a program: its pid, where it is asked, where it answers."""
    asked, asks = os.pipe()
    answers, answered = os.pipe()
    pid = os.fork()
    if pid == 0:
        alone(lambda: play(asked, answered), asked, answered)
    os.close(asked)
    os.close(answered)
    return pid, asks, answers


def tried(player: tuple[int, int, int], request: dict[str, Any], source: str) -> dict[str, Any]:
    """The verdict on one program. Its processes are gone afterwards, whatever they do."""
    seconds, (played, asks, answers) = float(request["seconds"]), player
    result, tell = os.pipe()
    judged = os.fork()
    if judged == 0:
        function = Remote(str(request["name"]), asks, answers)
        alone(lambda: judge(request, source, function, tell), asks, answers, tell)
    os.close(tell)
    try:
        return verdict(**receive(result, time.monotonic() + seconds))
    except TimeoutError:
        return verdict(f"it took longer than {seconds:.3g} seconds")
    except (EOFError, TypeError, ValueError, RecursionError):  # the evaluator may be hostile, too
        return verdict("its evaluator's process ended or talks nonsense: does it take too much memory?")
    finally:
        os.close(result)
        for pid in (played, judged):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def verdict(error: object, value: object = None, output: object = "") -> dict[str, Any]:
    """What is said of a program whose evaluator gave `value`. None: no score was asked for, or it has an error."""
    score, scores = (None, []) if error is not None or value is None else scored(value)
    error = None if error is None else str(error)[:TEXT]
    return {
        "success": error is None, "score": score, "scores": scores, "error": error, "output": str(output)[:OUTPUT],
    }  # fmt: skip


def alone(work: Callable[[], None], *kept: int) -> NoReturn:
    """In a forked process: do the work with these descriptors and nothing else, and end."""
    try:
        highest = 3 * MOST + 64
        for first, last in zip((-1, *sorted(kept)), (*sorted(kept), highest), strict=True):
            os.closerange(first + 1, last)
        confine()
        random.seed(0)
        work()
    except BaseException:  # noqa: BLE001 - whoever waits sees that the pipe is closed
        os._exit(1)
    os._exit(0)


# ------------------------------------------------------------------------------------------ the two processes


def play(asked: int, answered: int) -> None:
    """The program's process: define the function, then answer calls for as long as there are some."""
    printed = Printed()
    sys.stdout = sys.stderr = printed
    begin = receive(asked)
    namespace: dict[str, Any] = {"__name__": "program"}

    def define() -> None:
        exec(compile(begin["source"], "<program>", "exec", dont_inherit=True), namespace)
        if not callable(namespace.get(begin["name"])):
            raise NameError(f"the program defines no function {begin['name']}")

    send(answered, outcome(define))
    while True:
        call = receive(asked)
        if call is None:
            send(answered, printed.kept)
            return
        arguments, named = unpack(call)
        send(answered, outcome(lambda: namespace[begin["name"]](*arguments, **named)))  # noqa: B023 - called at once


def outcome(work: Callable[[], object]) -> dict[str, Any]:
    """What came of a call, as it is sent back."""
    try:
        return {"value": pack(work())}
    except BaseException as error:  # noqa: BLE001 - the program may raise anything
        return {"raised": type(error).__name__, "message": text_of(error), "line": line_in("<program>", error)}


class Lost(BaseException):
    """The program's process does not answer any more. No Exception: an evaluator must not take it for a result."""


class Remote:
    """The program's function, as a test and an evaluator call it."""

    def __init__(self, name: str, asks: int, answers: int) -> None:
        self.__name__ = name
        self.lost = False
        self._asks, self._answers = asks, answers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self.ask(pack((args, kwargs)))
        try:
            if "value" in answer:
                return unpack(answer["value"])
            raised, message, line = answer["raised"], str(answer["message"]), answer["line"]
        except (LookupError, TypeError, ValueError, RecursionError):
            raise self.gone("its process answers nonsense") from None
        kind = getattr(builtins, str(raised), None)
        place = f" (line {int(line)} of the program)" if line else ""
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise RuntimeError(f"{raised}{message and ': '}{message}{place}")
        try:
            error = kind(message + place)
        except TypeError:  # one that is not made of a text
            error = RuntimeError(f"{raised}: {message}{place}")
        raise error

    def ask(self, question: Any) -> Any:
        """Send a question and wait for the answer."""
        try:
            send(self._asks, question)
            return receive(self._answers)
        except (OSError, EOFError):
            raise self.gone("its process ended") from None
        except (ValueError, RecursionError):
            raise self.gone("its process answers nonsense") from None

    def gone(self, why: str) -> Lost:
        self.lost = True
        return Lost(why)


def judge(request: dict[str, Any], source: str, function: Remote, tell: int) -> None:
    """The evaluator's process: have the program defined, test it, evaluate it, tell the verdict."""
    sys.stdout = sys.stderr = Printed()
    stage, score, error = "program", None, None
    try:
        defined = function.ask({"name": request["name"], "source": source})
        if "raised" in defined:
            line = f" (line {defined['line']} of the program)" if defined["line"] else ""
            raise Lost(f"{defined['raised']}: {defined['message']}{line}")  # for people alone: it may be a lie
        for stage, name in (("test", "test"), ("evaluator", "evaluate")):
            written = str(request["tests" if stage == "test" else "evaluator"])
            if not written.strip():
                continue
            namespace: dict[str, Any] = {"__name__": stage}
            exec(compile(written, f"<{stage}>", "exec", dont_inherit=True), namespace)
            if not callable(namespace.get(name)):
                raise NameError(f"it defines no function {name}")
            value = namespace[name](function)
            if function.lost:
                raise Lost("its process ended")
            if stage == "evaluator":
                score = scored(value)[1]
    except Lost as lost:
        error = f"program: {lost}"
    except BaseException as failed:  # noqa: BLE001 - model-written too
        at = line_in(f"<{stage}>", failed)
        shown = str(request["tests" if stage == "test" else "evaluator"]).splitlines()[at - 1 : at]
        place = f" (line {at} of the {stage}: {shown[0].strip()})" if at and shown else ""
        error = f"{stage}: {': '.join(filter(None, (type(failed).__name__, text_of(failed))))}{place}"
    output = ""
    if not function.lost:
        with contextlib.suppress(Lost):
            output = str(function.ask(None))[:OUTPUT]
    send(tell, {"error": error, "value": score, "output": output})


def scored(value: object) -> tuple[float, list[float]]:
    """An evaluator's result as a score, and as one for each instance. Raises ValueError, TypeError."""
    given: Any = value if isinstance(value, list | tuple) else [value]
    if not 0 < len(given) <= MOST_SCORES:
        raise ValueError(f"it gives {len(given)} numbers: give one, or a list of 1 to {MOST_SCORES}")
    numbers = [float(one) for one in given]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"its score is {value!r:.100}: give finite numbers")
    return math.fsum(numbers) / len(numbers), numbers


class Printed(io.TextIOBase):
    """What was printed, as far as it is kept."""

    def __init__(self) -> None:
        self.kept = ""

    def write(self, text: str, /) -> int:
        self.kept += text[: OUTPUT - len(self.kept)]
        return len(text)


def text_of(error: BaseException) -> str:
    try:
        return (error.msg if isinstance(error, SyntaxError) else str(error))[:TEXT]
    except BaseException:  # noqa: BLE001 - its class may be the program's own
        return ""


def line_in(file: str, error: BaseException) -> int:
    """The last line of `file` on the way to where an error was raised; 0: it has none."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 0
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else 0


# ----------------------------------------------------------------------------------------- what they exchange


def pack(value: Any) -> Any:
    """Plain data as JSON that keeps tuples, sets, bytes and all keys. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, tuple):
        return {"t": [pack(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {"s": [pack(one) for one in value]}
    if isinstance(value, dict):
        return {"d": [[pack(key), pack(one)] for key, one in value.items()]}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    usable = "None, bool, int, float, str, bytes, list, tuple, set, dict"
    raise TypeError(f"{type(value).__name__} can't be handed over: use {usable}")


def unpack(value: Any) -> Any:
    """What `pack` was given. Raises LookupError, TypeError or ValueError where it is of another form."""
    if isinstance(value, list):
        return [unpack(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    match kind:
        case "t":
            return tuple(unpack(one) for one in inner)
        case "s":
            return {unpack(one) for one in inner}
        case "d":
            return {unpack(key): unpack(one) for key, one in inner}
        case "b":
            return bytes.fromhex(inner)
    raise ValueError(f"no kind of data: {kind!r:.20}")


def send(pipe: int, value: Any) -> None:
    """Write a JSON value. Raises OSError where nobody reads any more, ValueError where it is too much."""
    data = json.dumps(value).encode()
    if len(data) > FRAME:
        raise ValueError(f"{len(data):,} bytes are too much to hand over")
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int, deadline: float | None = None) -> Any:
    """The next JSON value. Raises EOFError, ValueError, and TimeoutError after `deadline` (of time.monotonic)."""
    [size] = struct.unpack("<I", read(pipe, 4, deadline))
    if size > FRAME:
        raise ValueError("too much at once")
    return json.loads(read(pipe, size, deadline))


def read(pipe: int, count: int, deadline: float | None) -> bytes:
    data = b""
    while len(data) < count:
        if deadline is not None and not select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise TimeoutError
        more = os.read(pipe, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


# ------------------------------------------------------------------------------------------------ confinement

ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "gettimeofday": (96, 169),
    "getrusage": (98, 165), "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "getrandom": (318, 278),
}  # fmt: skip
"""System calls that computing takes: numbers on x86-64 and on aarch64 (asm/unistd.h). Others: EPERM."""
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Which number, and AUDIT_ARCH_* of linux/audit.h."""
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050001
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def confine() -> None:
    """Give up everything but memory, the clock and what is open. Raises OSError where the kernel does not do it.

    On other systems than Linux on these processors, where only WEAVEGEN_SANDBOX=none runs, the limits alone hold.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return
    data = filter_of(platform.machine())
    lines = ctypes.create_string_buffer(data, len(data))

    class Program(ctypes.Structure):
        """struct sock_fprog."""

        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))

    program = Program(len(data) // 8, ctypes.addressof(lines))
    control = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, ctypes.byref(program))):
        if control(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the process can't be confined")


def filter_of(machine: str) -> bytes:
    """The filter's instructions, of eight bytes each (struct sock_filter)."""
    which, architecture = ARCHITECTURES[machine]
    numbers = [pair[which] for pair in ALLOWED.values()]
    lines = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, REFUSE), (LOAD, 0, 0, 0)]
    lines += [(EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    lines += [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


if __name__ == "__main__":
    main(int(sys.argv[1]))
