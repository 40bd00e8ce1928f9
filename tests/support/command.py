"""Commands of weavegen as a user runs them, without the two seconds of CPU that the imports take.

Each command is a process of its own, forked from a server process that has already imported everything.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "weavegen"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.support.preload"])
_polling = threading.Lock()
"""Held while multiprocessing polls the exit codes of all processes: of two threads at once, one would read 255."""


def run(
    arguments: Sequence[str], environ: Mapping[str, str], folder: Path, timeout: float
) -> "subprocess.CompletedProcess[str]":
    """Run `weavegen` with these arguments and environment variables in `folder`.

    Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    command = [str(PROGRAM), *arguments]
    with tempfile.TemporaryDirectory(prefix="weavegen-command-") as written:
        out, err = Path(written, "out"), Path(written, "err")
        process = _processes.Process(target=_main, args=(command, dict(environ), str(folder), str(out), str(err)))
        with _polling:
            process.start()
        ended = wait([process.sentinel], timeout)
        if not ended:
            process.kill()
        with _polling:
            process.join()
            assert process.exitcode is not None
        if not ended:
            raise subprocess.TimeoutExpired(command, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(command, process.exitcode, out.read_text(), err.read_text())


def _main(command: list[str], environ: dict[str, str], folder: str, out: str, err: str) -> None:
    """Run the console script `weavegen` in the forked process."""
    for number, name, path in ((1, "stdout", out), (2, "stderr", err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
        setattr(sys, name, open(number, "w", encoding="utf-8", buffering=1, closefd=False))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = command
    from weavegen.cli import main  # its consoles check standard output when they are created

    main()
