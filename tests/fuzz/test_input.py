"""User input: jobs files, options, settings, paths. It can be stored, or UsageError says why not."""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from weavegen.cli.jobs import by_type, pairs
from weavegen.engine import enqueueing
from weavegen.errors import UsageError
from weavegen.kernel.settings import BlockSettings, Settings, check_json, settings
from weavegen.store.jobs import Order
from weavegen.text import parse_size

PROJECT = Path(__file__).resolve().parent.parent.parent
SOURCE = 'x = args.params.get("a", 1)\n'
NAMES = (*Settings.__struct_fields__, *(f"action.{name}" for name in BlockSettings.__struct_fields__))

numbers = st.integers() | st.floats() | st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e308, -0.0, 5e-324])
strange = st.text(st.characters(), max_size=9) | st.sampled_from(["\x00", "\ud800", "a" * 5_000, "..", "~", "[", "**"])
values = st.recursive(
    st.none() | st.booleans() | numbers | strange,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strange, inner, max_size=4),
    max_leaves=9,
)
written = values.map(lambda value: json.dumps(value)) | strange


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    """A separate folder with one bootstrap file, from which tests read."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("b.py").write_text(SOURCE)
        yield
        os.chdir(before)


def stored(value: Any) -> None:
    """Convert a value as the database and the environment do."""
    text = msgspec.json.encode(value)
    assert b"\\u0000" not in text
    assert msgspec.json.decode(text) == json.loads(json.dumps(value))
    json.dump(value, io.StringIO())


@fuzz(200)
@given(st.dictionaries(strange, values, max_size=3))
@example({"a": json.loads("[" * 200 + "]" * 200)})
@example({"a": float("nan")})
def test_what_passes_the_check_can_be_stored(value: dict[str, Any]) -> None:
    try:
        check_json(value, "params")
    except UsageError:
        return
    stored(value)


@fuzz(300)
@given(st.lists(st.builds("{}={}".format, st.sampled_from(NAMES) | strange, written) | strange, max_size=4))
@example(["a=" + "[" * 100_000])
@example(["a=\udcff"])
@example(["\udcff=1"])
@example(["types=[1]", "action.rounds=[1]"])
@example(["action.rounds=" + "9" * 4_000])
def test_options_are_settings_or_refused(options: list[str]) -> None:
    try:
        given = by_type(pairs(options))
        numbers = settings(given)
        for type in ("action", "orientation", "outcome"):
            numbers.of(type)
    except UsageError:
        return
    stored(given)


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_absurd_numbers_are_refused(name: str) -> None:
    for number in (-(2**63) - 1, -1e10, 1e308, 10**400, float("nan"), float("inf")):
        for value in (number, [number], {"action": {name: number}}):
            with pytest.raises(UsageError):
                settings({name: value})


@fuzz(300)
@given(st.text("0123456789.kKmMgG+-e_ \u0661\x00\ud800in", max_size=12) | strange)
@example("1e400")
@example("inf")
@example("9" * 5_000)
@example("1e300G")
def test_a_size_is_a_number_of_bytes_or_refused(text: str) -> None:
    try:
        value = parse_size(text, "--until", 10**15)
    except UsageError:
        return
    assert 1 <= value <= 10**15


rows = st.fixed_dictionaries(
    {"bootstrap": st.just("b.py") | strange},
    optional={"n": st.integers(-1, 3) | numbers, "params": st.dictionaries(strange, values, max_size=2) | values,
              "seed": numbers | st.none()},
).map(json.dumps)  # fmt: skip
files = st.lists(rows | written, max_size=4).map("\n".join).map(lambda text: text.encode(errors="surrogatepass"))


def read_rows(content: bytes) -> list[Order]:
    Path("rows.jsonl").write_bytes(content)
    return enqueueing.rows("rows.jsonl")


@fuzz(300)
@given(files | st.binary(max_size=99))
@example(b'{"bootstrap": "a\\u0000"}')
@example(b'{"bootstrap": "' + b"a" * 5_000 + b'"}')
@example(b'{"bootstrap": "b.py", "n": 1000000000000}')
@example(b'{"bootstrap": "b.py", "params": {"a": ' + b"[" * 100_000)
@example(b'{"bootstrap": "b.py", "params": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}")
@example(b'{"bootstrap": "b.py", "seed": ' + b"9" * 99 + b"}")
@example(b'{"bootstrap": "/dev/zero"}')
def test_a_jobs_file_is_read_or_refused(content: bytes) -> None:
    try:
        found = read_rows(content)
        for order in found:
            check_json(order.params, "params")
            enqueueing.check_seed(order.seed)
    except UsageError:
        return
    assert found
    for order in found:
        stored(order.params)
        stored(order.name)


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"bootstrap": "b.py"}',
        '{"bootstrap": "b.py", "params": {"a": "\u2028\u0085\u000b"}}'.replace("\u000b", "\\u000b").encode(),
        b'{"bootstrap": "b.py"}\r\n\r\n',
    ],
    ids=["byte order mark", "separators of lines that JSON allows", "Windows"],
)
def test_a_jobs_file_of_any_editor_is_read(content: bytes) -> None:
    assert [order.source for order in read_rows(content)] == [SOURCE]


def test_a_bootstrap_is_kept_once_for_all_rows() -> None:
    found = read_rows(b'{"bootstrap": "b.py", "n": 3}\n' * 1_000)
    assert len(found) == 3_000
    assert len({id(order.source) for order in found}) == 1


def test_a_job_has_a_maximum_of_traces() -> None:
    row = f'{{"bootstrap": "b.py", "n": {enqueueing.MAX_TRACES}}}\n'
    assert len(read_rows(row.encode())) == enqueueing.MAX_TRACES
    with pytest.raises(UsageError, match="several jobs"):
        read_rows((row * 2).encode())
    with pytest.raises(UsageError, match="several jobs"):
        enqueueing.orders(["b.py", "b.py"], enqueueing.MAX_TRACES)


@fuzz(150)
@given(strange | st.text("*?[]!-/.b\x00\udcffpy", max_size=12))
@example("a" * 5_000)
@example("*" * 5_000)
@example("a\x00/*")
@example("\udcff*")
def test_a_path_is_found_or_refused(path: str) -> None:
    try:
        enqueueing.orders([path])
    except UsageError:
        return
    assert Path(path).exists()


@fuzz(100)
@given(strange, strange, numbers)
def test_a_job_that_can_not_be_stored_is_refused_before_any_work(name: str, key: str, number: float) -> None:
    """There is no database: an accepted job would raise another error."""
    wrong: list[dict[str, Any]] = [{"name": name + "\x00"}, {"model": key + "\ud800"}, {"seed": 2**63}]
    for options in wrong:
        with pytest.raises(UsageError):
            enqueueing.enqueue(traces=[Order("b.py", SOURCE)], **options)
    with pytest.raises(UsageError):
        enqueueing.enqueue(traces=[Order("b.py", SOURCE, {key: [number, float("inf")]})])
    with pytest.raises(UsageError):
        enqueueing.enqueue(traces=[Order("b.py", SOURCE + "\x00")])


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "b.py", "-p", b"a=\xff"],
        ["enqueue", "b.py", "--until", "1e999"],
        ["enqueue", "--from", "rows.jsonl", "--set", "action.rounds=[1e300]"],
    ],
    ids=["option", "size", "rows"],
)
def test_the_command_line_prints_one_line(arguments: list[str | bytes]) -> None:
    Path("rows.jsonl").write_text('{"bootstrap": "b.py", "n": 100000000000}')
    done = subprocess.run(
        [sys.executable, "-m", "weavegen.cli", *arguments],
        capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr[-500:]
    assert done.stdout == b""
    assert len(done.stderr.decode().strip().splitlines()) == 1
