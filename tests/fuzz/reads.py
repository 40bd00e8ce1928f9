"""Reads every input of `inputs.py` with one of weavegen's readers, in a process of its own: it may die or hang.

python -m tests.fuzz.reads READER      prints, as JSON, how many texts were read, and what was wrong
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lark

from tests.fuzz import TIMES
from tests.fuzz.inputs import LONG, deep, every
from weavegen.box.wire import MAX_BYTES_FROM_BOX, BrokenFrame, Reader, frame, parse
from weavegen.cli import jobs
from weavegen.engine.enqueueing import rows
from weavegen.errors import UsageError
from weavegen.kernel.settings import settings
from weavegen.linting.lint import lint
from weavegen.linting.partial import viable_prefix
from weavegen.linting.truncate import MAX_CHARS
from weavegen.text import parse_size
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import MAX_QUERY_CHARS, restricted, words
from weavegen.trace.query import parse as parse_query
from weavegen.trace.render import normalise_body, one_line, parse_trace

PROJECT = Path(__file__).resolve().parent.parent.parent
HANGS = 240.0
"""Seconds after which an unfinished reader counts as hanging."""
MEGABYTE = 1_000_000
MEMORY = 3 * 2**30
"""Limit of the address space in bytes: a text that makes Python compute gigabytes causes an error here."""
STACK = 2**20
"""Bytes of a thread's stack, an eighth of the default in Linux."""
SLOW = 1.0
"""Seconds of CPU below which growth is not checked, because shorter times are mostly noise."""
STEEPEST = 9.0
"""Allowed factor of time for four times the text: 4 is linear, 16 is quadratic."""

HEADER = "#subagent main\n#startblock type: action\n#index 1\n#timestamp 1.0\n#time_remaining 1.0 seconds\n"


def trace(text: str) -> None:
    for whole in (text, HEADER + text + "\n#endblock\n\n"):
        with suppress(lark.UnexpectedInput):
            parse_trace(whole)


def query(text: str) -> None:
    parse_query.__wrapped__(text)
    parse_query.__wrapped__(text[: MAX_QUERY_CHARS // 2])
    restricted(text, BlockType.ACTION)
    words(text)


def rendered(text: str) -> None:
    for type in (BlockType.ACTION, BlockType.OUTCOME):
        normalise_body(type, text)
    one_line(text)


def jobs_file(text: str) -> None:
    Path("b.py").write_text("x = 1\n")
    Path("rows.jsonl").write_bytes(text.encode(errors="surrogatepass"))
    with suppress(UsageError):
        rows("rows.jsonl")


def options(text: str) -> None:
    for option in (text, "a=" + text):
        with suppress(UsageError):
            settings(jobs.by_type(jobs.pairs([option])))
    with suppress(UsageError):
        parse_size(text, "--until", 10**15)


def wire(text: str) -> None:
    payload = text.encode(errors="surrogatepass")
    for data in (payload, b"\x00\x00\x00\x01" * (len(payload) // 4), len(payload).to_bytes(4, "big") + payload):
        reader = Reader(MAX_BYTES_FROM_BOX)
        with suppress(BrokenFrame):
            for start in range(0, len(data), 2**12):
                for message in reader.feed(data[start : start + 2**12]):
                    parse(message)
    with suppress(BrokenFrame):
        frame({"text": text}, MAX_BYTES_FROM_BOX)


READERS: dict[str, Callable[[str], object]] = {
    "action": lambda text: lint(BlockType.ACTION, text),
    "outcome": lambda text: lint(BlockType.OUTCOME, text),
    "beginning of an action": lambda text: viable_prefix(BlockType.ACTION, text),
    "trace": trace,
    "query": query,
    "rendered": rendered,
    "jobs file": jobs_file,
    "options": options,
    "wire": wire,
}
if TIMES > 1:
    READERS |= {
        "orientation": lambda text: lint(BlockType.ORIENTATION, text),
        "evaluation": lambda text: lint(BlockType.EVALUATION, text),
        "observation-inference": lambda text: lint(BlockType.OBSERVATION_INFERENCE, text),
        "beginning of an orientation": lambda text: viable_prefix(BlockType.ORIENTATION, text),
    }
OF_BLOCKS = [reader for reader in READERS if reader in set(BlockType) or "beginning" in reader]


def seconds(read: Callable[[str], object], text: str) -> float:
    """CPU time of this thread."""
    began = time.thread_time()
    read(text)
    return time.thread_time() - began


def all_of(reader: str, found: list[str], count: list[int]) -> None:
    """Append errors to `found`, and the number of texts that were read to `count`."""
    read = READERS[reader]
    read("x = 1")  # its grammar is built once
    quarters = every(MEGABYTE // 4)
    for name, text in every(MEGABYTE):
        _, quarter = next(quarters)
        with noted(name, found, count):
            took = seconds(read, text)
            if took > SLOW and took > STEEPEST * (before := seconds(read, quarter)):
                found.append(f"{name}: {before:.2f} s for a quarter of a megabyte, {took:.2f} s for all of it")
    if reader in OF_BLOCKS:  # they read little of a text of a megabyte
        longest = every(MAX_CHARS) if TIMES > 1 else ((name, make(MAX_CHARS)) for name, make in LONG.items())
        for name, text in (*longest, *deep()):
            with noted(name, found, count):
                read(text[:MAX_CHARS])


@contextmanager
def noted(name: str, found: list[str], count: list[int]) -> Iterator[None]:
    """Record what is read now, in case the process dies, and the exception."""
    sys.stderr.write(name + "\n")
    sys.stderr.flush()
    count[0] += 1
    try:
        yield
    except Exception as error:  # noqa: BLE001 - none is allowed
        found.append(f"{name}: {type(error).__name__}: {str(error)[:99]}")


def main(reader: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: list[str] = []
    count = [0]
    threading.stack_size(STACK)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        thread = threading.Thread(target=all_of, args=(reader, found, count))
        thread.start()
        thread.join()
    sys.stdout.write(json.dumps({"read": count[0], "wrong": found}))


def in_a_process(reader: str) -> None:
    """Have a process read everything. It must end without findings."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.fuzz.reads", reader],
        cwd=PROJECT, capture_output=True, text=True, timeout=HANGS,
    )  # fmt: skip
    assert done.returncode == 0, f"the reader died: {done.returncode}, {done.stderr[-300:]}"
    told = json.loads(done.stdout)
    assert not told["wrong"], "\n".join(told["wrong"])
    assert told["read"] > 100


if __name__ == "__main__":
    main(sys.argv[1])
