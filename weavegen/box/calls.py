"""Functions that a conversing agent calls by name (agents/react.py). They run in the box.

The model reads the signatures and docstrings of FUNCTIONS: agents/dialogue.py turns them into JSON schemas.
"""

import ast
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from weavegen.box import guard, mcp, trial

MAX_OUTPUT_CHARS = 16_000
"""Maximum length of a function's result. The middle of a longer text is cut out."""
MAX_PRINTED = 4 * MAX_OUTPUT_CHARS
"""Bytes that are kept of the beginning and of the end of what a command or Python code prints."""
namespace: dict[str, Any] = {}
"""The namespace in which `python` executes code. The runner replaces it by the namespace of the trace's blocks."""


def terminal(command: str, timeout: float = 20.0) -> str:
    """Run a bash command in the working directory and return what it prints, with the exit code if it is not 0.

    It is ended after `timeout` seconds. Nothing is kept between commands but files.
    """
    with subprocess.Popen(
        ["/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        left = mcp.deadline() - time.monotonic()
        timeout = min(timeout, round(max(left - 1, left / 2), 1))  # so that there is time to return what it printed
        printed, deadline, poll = bytearray(), time.monotonic() + timeout, select.poll()
        poll.register(process.stdout, select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0 and poll.poll(1000 * left):
                if not (read := os.read(process.stdout.fileno(), 65_536)):
                    break
                printed += read
                del printed[MAX_PRINTED:-MAX_PRINTED]  # a prompt may repeat for ever where it reads nothing
            code = process.wait(max(deadline - time.monotonic(), 0.0))
            ended = f"\n(exit code {code})" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"\n(ended after {timeout:g} seconds)"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return printed.decode(errors="replace") + ended


def python(code: str) -> str:
    """Run Python code and return what it prints, and the value of its last line if that is an expression.

    Variables, functions and imports stay for later calls.
    """
    tree = ast.parse(code, "<python>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    failed = ""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        guard.redirect(file.fileno())
        try:
            exec(compile(tree, "<python>", "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<python>", "eval"), namespace)
                if value is not None:
                    sys.stdout.write(f"{value!r}\n")
        except SystemExit as error:
            failed = f"(exit code {error.code})" if error.code else ""
        except Exception as error:  # noqa: BLE001 - the code's error is what the model must read
            line = 0 if isinstance(error, SyntaxError) else trial.line_number("<python>", error)
            failed = f"{type(error).__name__}: {error}" + (f" (line {line})" if line else "")
        finally:
            guard.flush()
            guard.redirect(kept)
            os.close(kept)
        rest = max(os.fstat(file.fileno()).st_size - MAX_PRINTED, MAX_PRINTED)
        printed = os.pread(file.fileno(), MAX_PRINTED, 0) + os.pread(file.fileno(), MAX_PRINTED, rest)
    if failed:
        raise RuntimeError(printed.decode(errors="replace") + failed)
    return printed.decode(errors="replace")


def read_file(path: str, first_line: int = 1, lines: int = 400) -> str:
    """Return lines of a text file, from `first_line` (1 is the first) on, `lines` at most."""
    with open(path, encoding="utf-8", errors="replace") as file:
        content = file.read().splitlines(keepends=True)
    start = max(first_line, 1) - 1
    shown = content[start : start + max(lines, 0)]
    left = len(content) - start - len(shown)
    return "".join(shown) + (f"\n({left} more lines)" if left > 0 else "")


def write_file(path: str, content: str, append: bool = False) -> str:
    """Write a text file, or append to it; folders are made as needed."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        file.write(content)
    return f"{len(content)} characters written to {path}"


FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function for function in (terminal, python, read_file, write_file)
}
"""The functions that every trace has."""


def call(name: str, arguments: dict[str, Any], server: str | None = None) -> dict[str, Any]:
    """Call a function, or a tool of an MCP `server`.

    Returns `{"success": True, "output"}`, or `{"success": False, "error"}` if it raised.
    """
    try:
        output = FUNCTIONS[name](**arguments) if server is None else mcp.call(server, name, arguments)
        return {"success": True, "output": shorten(output)}
    except Exception as error:  # noqa: BLE001 - the model reads the failure
        message = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
        return {"success": False, "error": shorten(message)}


def shorten(text: str, limit: int = MAX_OUTPUT_CHARS, percent: int = 50) -> str:
    """Cut the middle out of a text longer than `limit`. `percent`: the share of the kept text that comes first."""
    if len(text) <= limit:
        return text
    head = limit * percent // 100
    return f"{text[:head]}\n... ({len(text) - limit} characters left out) ...\n{text[head - limit :]}"
