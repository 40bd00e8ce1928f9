"""Every command in the documents and in help texts is run, and works."""

import concurrent.futures
import importlib.util
import itertools
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from celery.bin.celery import celery as celery_cli
from typer.main import get_command

from tests.docs.desk import ENDLESS, PLACEHOLDERS, REQUESTS, STEERING, Outcome, desk
from tests.docs.reading import DOCUMENTS, PROGRAMS, ROOT, Command, code, commands, examples
from tests.support.deployment import QUEUES
from weavegen.cli.app import app

ALL = [one for document in DOCUMENTS if document.name != "CHANGELOG.md" for one in commands(document)]
ALL += examples()
WEAVEGEN: Any = get_command(app)
NOT_RUN = {
    "apt-get": "changes the machine",
    "celery": "workers and pages like those that `weavegen up` starts",
    "docker": "needs Docker; make test-image runs the same parts with podman",
    "harbor": "needs Python 3.12; tests/harbor runs it",
    "kubectl": "needs a cluster",
    "mmdebstrap": "makes a root file system; tests/harbor makes one",
    "sudo": "changes the machine",
    "make": "sets things up, and takes minutes",
    "redis-cli": "a client of Redis or Valkey, which the wheel of the server lacks",
    "ssh": "needs another machine",
    "vllm": "needs a GPU; make test-vllm serves a model with these options",
    "WEAVEGEN_WRITE_ANSWERS=1 python -m pytest tests/corpus/test_corpus_docs.py": "writes into a document",
    "weavegen --install-completion": "changes the shell's own files",
    "weavegen demo": "make demo",
    "weavegen doctor --sandbox": "takes minutes; tests/security has the same attacks",
    "weavegen doctor --sandbox --json": "the same",
    "weavegen down": "all the others need what it ends",
    "weavegen enqueue --network host": "a part of a command",
    "weavegen export --format trajectories": "a part of a command",
    "weavegen up --model my-model": "all the others need the simulation",
    "pg_dump --format=custom": "a part of a command",
}
"""Commands that are not run, by program or by full text, with the reason."""
ELSEWHERE = {
    "python -m tests.compat": "needs the files of another project",
    "python -m bench.windows": "needs PyTorch, which .venv-trl has, and takes minutes",
    "python -m bench": "takes minutes, and needs an idle machine; make bench",
    "weavegen eval": "takes minutes; tests/tuning/test_tuning.py",
    "weavegen improve": "needs PyTorch; tests/tuning/test_improve.py",
    "weavegen tune": "needs PyTorch; tests/tuning/test_tuning.py",
    "weavegen pool load": "the simulation has no weights; tests/nano/test_adapters.py",
    "weavegen pool unload": "the same",
    "python -m weavegen.training.tune": "needs PyTorch; tests/tuning/test_tuning.py",
    "python -m pytest tests/unit/test_routing.py": "needs the source tree as current folder; make test",
    "weavegen up --vllm": "needs vLLM; tests/real",
    "weavegen enqueue --harbor": "needs buildah; tests/harbor",
    "weavegen enqueue --agent react --harbor": "the same",
    "weavegen export --format harbor": "the same",
    "weavegen export --format sessions --out sessions --push-to-hub": "needs a hub; tests/corpus/test_hub.py",
    "weavegen enqueue --mcp": "needs MCP servers; tests/agents/test_mcp.py",
    "weavegen images add": "the same",
    "weavegen images build": "the same",
    "weavegen up --model weights": "needs weights, and all the others need the simulation",
}
"""Commands that are not run, by their beginning, without variables before it."""


def words(command: Command) -> list[str]:
    """The words of a command without variables before it and without redirections."""
    found = itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), shlex.split(command.text))
    return list(itertools.takewhile(lambda word: word not in ("<", ">"), found))


def reason(command: Command) -> str | None:
    """Why the command is not run; None if it is run."""
    line = f"{shlex.join(words(command))} "
    elsewhere = (why for begins, why in ELSEWHERE.items() if line.startswith(f"{begins} "))
    known = NOT_RUN.get(command.text) or NOT_RUN.get(command.text.split()[0])
    return known or (None if is_synopsis(command) else next(elsewhere, None))


def of_weavegen(line: list[str]) -> tuple[Any, list[str]]:
    """The command of weavegen, and its arguments."""
    meant, rest = WEAVEGEN, line[1:]
    while rest and rest[0] in getattr(meant, "commands", {}):
        meant, rest = meant.commands[rest[0]], rest[1:]
    assert meant is not WEAVEGEN or not rest or rest[0].startswith("-"), f"there is no weavegen {rest[0]}"
    return meant, rest


def options(meant: Any) -> set[str]:
    return {option for parameter in meant.params for option in (*parameter.opts, *parameter.secondary_opts)}


def parses(line: list[str]) -> bool:
    """Whether weavegen accepts the options of the line."""
    meant, rest = of_weavegen(line)
    if line[1].startswith("-"):  # These options take effect while they are parsed.
        return set(rest) <= options(meant)
    try:
        meant.make_context(line[1], rest)
    except Exception as error:
        if not hasattr(error, "format_message"):  # errors of click and typer have this method
            raise
        return False
    return True


def is_synopsis(command: Command) -> bool:
    """Whether the text is only the name of a command, with at most some of its arguments."""
    line = words(command)
    if line[0] != "weavegen" or command.block is not None or command.path.startswith("help"):
        return False
    _, rest = of_weavegen(line)
    if all(word.startswith("-") for word in rest):
        return not rest or not parses(line)
    return any(re.search(r"\[|^[A-Z]+$", word) for word in rest)


def units() -> list[tuple[Command, ...]]:
    """Commands in units that do not depend on each other. A block is one unit."""
    found: dict[object, tuple[Command, ...]] = {}
    for command in RUN:
        key = command if command.block is None else (command.path, command.block)
        found[key] = (*found.get(key, ()), command)
    return list(found.values())


RUN = [one for one in ALL if reason(one) is None and not is_synopsis(one)]
SYNOPSES = [one for one in ALL if reason(one) is None and is_synopsis(one)]
NOT = [one for one in ALL if reason(one) is not None]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Command, "Future[Outcome]"]]:
    """The results of the selected commands. Units run in parallel, commands that affect others run last."""
    asked = {item.callspec.params.get("command") for item in request.session.items if hasattr(item, "callspec")}
    chosen = [unit for unit in units() if asked & set(unit)]
    last = [unit for unit in chosen if any(STEERING.search(one.text) for one in unit)]
    futures: dict[Command, Future[Outcome]] = {one: Future() for unit in chosen for one in unit}
    needed = 2 * sum(any(REQUESTS.match(one.text) for one in unit) for unit in chosen)

    with desk(tmp_path_factory.mktemp("desk"), needed) as reader, ThreadPoolExecutor(6) as pool:

        def run(unit: tuple[Command, ...]) -> None:
            try:
                for command, outcome in reader.run(unit).items():
                    futures[command].set_result(outcome)
            except Exception as error:  # noqa: BLE001 - the tests that ask for it are told
                for command in unit:
                    futures[command].set_exception(error)

        def run_last(others: list["Future[None]"]) -> None:
            concurrent.futures.wait(others)
            for unit in last:
                run(unit)

        pool.submit(run_last, [pool.submit(run, unit) for unit in chosen if unit not in last])
        yield futures


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_runs(command: Command, outcomes: dict[Command, "Future[Outcome]"]) -> None:
    outcome = outcomes[command].result()
    assert outcome.code in ((0, 130) if ENDLESS.search(command.text) else (0,)), outcome
    assert "Traceback" not in outcome.err, outcome


@pytest.mark.parametrize("command", SYNOPSES, ids=str)
def test_commands_that_are_named_exist(command: Command) -> None:
    meant, rest = of_weavegen(words(command))
    assert {word.strip("[].") for word in rest if word.strip("[.").startswith("-")} <= options(meant)


@pytest.mark.parametrize("command", NOT, ids=str)
def test_commands_that_are_not_run_have_valid_options(command: Command) -> None:
    """As far as this can be checked without running them."""
    line = words(command)
    match line[0]:
        case "weavegen":
            assert parses(line)
        case "make":
            assert f"\n{line[1]}:" in (ROOT / "Makefile").read_text()
        case "python":
            assert line[1] == "-m"
            assert importlib.util.find_spec(line[2])
        case "celery":
            verb = line[3]
            assert line[1:3] == ["-A", "tasks"]
            if verb == "flower":
                return
            given = {word.split("=")[0] for word in line[4:] if word.startswith("-")}
            assert given <= options(celery_cli.commands[verb])
            queues = line[line.index("-Q") + 1].split(",") if "-Q" in line else []
            assert {queue for queue in queues if not queue.startswith("execute.")} <= QUEUES
        case "docker" | "kubectl":
            assert all((ROOT / word).is_file() for word in line if word.startswith("deploy/"))


def test_the_tables_name_only_commands_of_the_documents() -> None:
    for known in NOT_RUN:
        assert any(known in (one.text, one.text.split()[0]) for one in ALL), known
    for pattern, _ in PLACEHOLDERS:
        assert any(re.search(pattern, text) for one in RUN for text in (one.text, *one.exports)), pattern


def test_no_command_is_overlooked() -> None:
    """In a block that is not for a shell, no line begins like a command."""
    for document in DOCUMENTS:
        for block in code(document):
            if block.language == "" and not block.is_shell:
                first = {line.split()[0] for line in block.text.splitlines() if line.strip()}
                assert not first & PROGRAMS or "─►" in block.text, block
