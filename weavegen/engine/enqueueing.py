"""Enqueue: check everything first, then write the job in one transaction. Nothing is half-written."""

import dataclasses
import glob
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weavegen import __version__, config
from weavegen.agents import AGENTS, Agent
from weavegen.agents.dialogue import task_of
from weavegen.config import Config
from weavegen.engine.document_folder import read_folder
from weavegen.errors import UsageError, WeavegenError
from weavegen.kernel.settings import Settings, check_json, renamed
from weavegen.kernel.settings import settings as read_settings
from weavegen.linting.lint import syntax_error
from weavegen.pool.served import check_servers
from weavegen.sandbox.environment import Limits, dry_run
from weavegen.services import fleet, postgres, redis, schema
from weavegen.store import documents as document_rows
from weavegen.store import jobs, servers
from weavegen.store.jobs import Order
from weavegen.store.session import engine as database
from weavegen.trace.render import clean, one_line

BOOTSTRAPS = Path(__file__).resolve().parents[2] / "bootstraps"
"""The project's own bootstrap files."""
MOST = 1_000_000
"""Traces of one job. Each is a row that is put together in memory first."""
LARGEST = 2**26
"""Characters of a file that is read."""
TRIED = 8
"""Bootstraps of a job that are run once before it is enqueued. One that fails later is data of its traces."""


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a jobs file: a bootstrap file or a task, how many traces of it, with which parameters."""

    bootstrap: str | None = None
    task: str | dict[str, Any] | None = None
    n: int = 1
    params: dict[str, Any] = {}
    seed: int | None = None


def enqueue(
    *files: str | Path,
    n: int = 1,
    params: Mapping[str, Any] | None = None,
    seed: int | None = None,
    name: str | None = None,
    model: str | None = None,
    agent: str = "weave",
    settings: Mapping[str, Any] | None = None,
    check: bool = True,
    tasks: Sequence[str | Mapping[str, Any]] = (),
    documents: str | Path | None = None,
    user: str | None = None,
) -> int:
    """Enqueue `n` traces of each bootstrap file or task. Returns the job's id. Raises UsageError.

    `settings` are those of weavegen/kernel/settings.py that differ from the defaults, such as `{"ticks": 10}`.
    `params` is what the bootstrap reads as `args.params`. `check` runs each bootstrap once in a sandbox first.
    `tasks` are for agents that take these: text, or an object with all that the agent's task has. `documents`: a
    folder that the job's researchers may read, as it is now. `user`: in whose name; by default WEAVEGEN_USER or
    the login name.
    """
    return submit(
        orders(files, n, params, agent=agent) + task_orders(tasks, n),
        name=name,
        seed=seed,
        model=model,
        agent=agent,
        settings=settings,
        check=check,
        documents=documents,
        user=user,
    )


def enqueue_source(bootstrap: str, *, n: int = 1, params: Mapping[str, Any] | None = None, **options: Any) -> int:
    """Enqueue `n` traces of a bootstrap given as text. Options as in `enqueue`; it is not run first."""
    one = Order("bootstrap.py", bootstrap, dict(params or {}))
    return submit(several(one, n), **{"check": False, **options})


def orders(
    files: Iterable[str | Path], n: int = 1, params: Mapping[str, Any] | None = None, *, agent: str = "weave"
) -> list[Order]:
    """`n` traces of each file; a name that is no file may be a pattern. Raises UsageError.

    Files that a pattern finds and that never register an action are left out: they are modules of others. To an
    agent that takes tasks, a file that is no Python is one.
    """
    takes_tasks = agent in AGENTS and AGENTS[agent].task is not None
    paths: list[str] = []
    for file in map(str, files):
        found = [file]
        if not exists(file):
            found = [
                path
                for path in matching(file)
                if "self.add_action(" in read(path) or (takes_tasks and not path.endswith(".py"))
            ]
        if not found:
            raise UsageError(f"{file} does not exist: give the path of a bootstrap file")
        paths += found
    found_orders: list[Order] = []
    for path in paths:
        source = read(path)
        if takes_tasks and not path.endswith(".py"):
            source = task_source(json_object(source, path) if path.endswith(".json") else source)
        found_orders += several(Order(named(path), source, dict(params or {})), n, len(found_orders))
    return found_orders


def task_orders(tasks: Iterable[str | Mapping[str, Any]], n: int = 1) -> list[Order]:
    """`n` traces of each task. Raises UsageError."""
    found: list[Order] = []
    for task in tasks:
        told = task if isinstance(task, str) else next((str(text) for text in task.values() if text), "task")
        found += several(Order(one_line(told)[:60] or "task", task_source(task)), n, len(found))
    return found


def task_source(task: str | Mapping[str, Any]) -> str:
    """A task as it is stored; a text is what is to be done."""
    value = {"task": clean(task.strip())} if isinstance(task, str) else dict(task)
    check_json(value, "the task")
    return msgspec.json.encode(value).decode()


def json_object(text: str, path: str | Path) -> dict[str, Any]:
    """A file that is one JSON object. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UsageError(f"{path}: {error}; give a JSON object, such as {TASK_EXAMPLE}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deep: give something flatter") from None


TASK_EXAMPLE = '{"task": "Count the lines of all files in /etc"}'


def rows(path: str | Path) -> list[Order]:
    """The traces that a jobs file asks for: one JSON object per line, as in Row. Raises UsageError."""
    found: list[Order] = []
    folder = Path(path).parent
    sources: dict[Path, str] = {}
    for number, line in enumerate(read(path).split("\n"), 1):  # JSON may hold what splitlines takes for an end
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=Row)
        except RecursionError:
            raise UsageError(f"{path}, line {number}: nested too deep: give something flatter") from None
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeEncodeError) as error:
            known = ", ".join(Row.__struct_fields__)
            raise UsageError(f"{path}, line {number}: {error}; a row has these keys: {known}") from None
        if (row.bootstrap is None) == (row.task is None):
            raise UsageError(f"{path}, line {number}: give a bootstrap or a task: one of them")
        if row.task is not None:
            found += several(dataclasses.replace(task_orders([row.task])[0], seed=row.seed), row.n, len(found))
            continue
        assert row.bootstrap is not None
        file = Path(row.bootstrap) if exists(row.bootstrap) else folder / row.bootstrap
        if file not in sources:
            sources[file] = read(file)
        found += several(Order(named(file), sources[file], row.params, row.seed), row.n, len(found))
    if not found:
        raise UsageError(f"{path} has no rows: give one JSON object per line, such as " + EXAMPLE)
    return found


EXAMPLE = '{"bootstrap": "bootstraps/tictactoe.py", "n": 4, "params": {"opponent": "minimax"}}'


def submit(
    orders: Sequence[Order],
    *,
    name: str | None = None,
    seed: int | None = None,
    model: str | None = None,
    agent: str = "weave",
    settings: Mapping[str, Any] | None = None,
    check: bool = True,
    documents: str | Path | None = None,
    user: str | None = None,
) -> int:
    """Check and write a job. Returns its id. Raises UsageError, and then nothing was written."""
    if not orders:
        raise UsageError("nothing to enqueue: name at least one bootstrap file or task")
    if agent not in AGENTS:
        raise UsageError(f"there is no agent {agent!r}: choose one of {', '.join(AGENTS)}")
    values = renamed(dict(settings or {}), warn=True)
    numbers = read_settings(values)
    for other in numbers.delegates.keys() - AGENTS.keys():
        raise UsageError(f"settings: delegates: there is no agent {other!r}: choose one of {', '.join(AGENTS)}")
    check_json({"name": name, "model": model}, "the job")
    for params in {id(order.params): order.params for order in orders}.values():
        check_json(params, "params")
    for wanted in {seed, *(order.seed for order in orders)}:
        check_seed(wanted)
    distinct = {order.source: order for order in orders}
    bootstraps = [order for order in distinct.values() if not is_task(order, AGENTS[agent], agent)]
    for order in bootstraps:
        compile_bootstrap(order)
    if check:
        for order in bootstraps[:TRIED]:
            try_bootstrap(order, numbers)
    texts = {} if documents is None else read_folder(documents).files
    with database().begin() as conn:
        job_id = jobs.enqueue(
            conn,
            orders,
            name=name or orders[0].name,
            agent=agent,
            model=model,
            seed=job_seed(seed),
            settings=values,
            version=__version__,
            enqueued_by=config.load().user if user is None else config.person(user, "--user"),
        )
        if texts:
            document_rows.save(conn, job_id, texts)
    return job_id


def is_task(order: Order, agent: Agent, name: str) -> bool:
    """Whether an agent is given a task, and not a bootstrap file. Raises UsageError where it can't take it."""
    if agent.task is None and order.source.startswith('{"'):
        takers = ", ".join(other for other, one in AGENTS.items() if one.task is not None)
        raise UsageError(f"{name} takes bootstrap files, no tasks: give --agent, one of {takers}")
    try:
        task = None if agent.task is None else task_of(order.source, agent.task)
    except msgspec.ValidationError as error:
        raise UsageError(f"{order.name}: {error}; a task of {name} is an object: {known(agent.task)}") from None
    if task is None and not agent.bootstraps:
        raise UsageError(f"{order.name} is a bootstrap file, and {name} takes tasks: give --task, or .md or .json")
    return task is not None


def known(task: type[msgspec.Struct] | None) -> str:
    """The keys of a task, for people."""
    fields = () if task is None else msgspec.structs.fields(task)
    return ", ".join(field.name if field.required else f"[{field.name}]" for field in fields)


def check_services(config: Config, model: str | None, *, workers: bool = False) -> None:
    """Raise UsageError unless database, broker, model server and, if asked for, workers answer and fit."""
    postgres.check(config)
    schema.check(postgres.database_url(config))
    redis.check(config)
    with database().connect() as conn:
        members = servers.members(conn, config)
    members.require()
    check_servers(list(members.keys), members.keys, model)
    if workers and not fleet.answering(config):
        raise UsageError("no worker answers: start them with `weavegen up`")


def read(path: str | Path) -> str:
    """A text file, without a byte order mark. Raises UsageError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(LARGEST + 1)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; give the path of a file") from None
    except ValueError:  # a name with a NUL, or with a lone surrogate
        raise UsageError(f"{str(path)!a} can't be the name of a file; give the path of a file") from None
    if len(text) > LARGEST:
        raise UsageError(f"{path} is longer than {LARGEST:,} characters: give a smaller file")
    return text


def exists(path: str | Path) -> bool:
    """Whether there is such a file; a text that can't be a file's name is none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def matching(pattern: str) -> list[str]:
    """The paths that a pattern finds, sorted."""
    try:
        return sorted(glob.glob(pattern))
    except (OSError, ValueError):
        return []


def named(path: str | Path) -> str:
    """A file's name as it can be stored and shown."""
    return clean(Path(path).name)


def several(order: Order, n: int, before: int = 0) -> list[Order]:
    """The order `n` times, where `before` are there already. Raises UsageError."""
    if n < 1:
        raise UsageError(f"n is {n}: give 1 or more")
    if n > MOST - before:
        raise UsageError(f"more than {MOST:,} traces in one job: enqueue several jobs")
    return [order] * n


def job_seed(seed: int | None) -> int:
    """The seed of a job: the one that is asked for, or any. Raises UsageError."""
    check_seed(seed)
    return random.SystemRandom().getrandbits(48) if seed is None else seed


def check_seed(seed: int | None) -> None:
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise UsageError("a seed has more than 64 bits: give a smaller one")


def compile_bootstrap(order: Order) -> None:
    """Raise UsageError where the file is no legal part of a trace."""
    if clean(order.source) != order.source.replace("\r\n", "\n"):
        raise UsageError(f"{order.name} holds control characters: remove them")
    error = syntax_error(order.source)
    if error is not None:
        raise UsageError(f"{order.name} does not compile: {error}")


def try_bootstrap(order: Order, numbers: Settings) -> None:
    """Raise UsageError where the file raises, or defines no action."""
    limits = Limits(seconds=numbers.callback_seconds)
    try:
        [executed] = dry_run(config.load(), order.source, order.params, limits=limits, network=numbers.network)
    except UsageError:
        raise
    except WeavegenError as error:
        raise UsageError(f"{order.name} could not be tried: {error}") from None
    if executed.error is not None:
        raise UsageError(
            f"{order.name} fails when it is run: {executed.error.type}: {executed.error.message}; mend it first"
        )
