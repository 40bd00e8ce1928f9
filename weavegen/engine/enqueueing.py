"""Enqueues jobs: checks all input first, then writes the job in one transaction."""

import dataclasses
import glob
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weavegen import chat_template, config
from weavegen.agents import AGENTS, Agent, harbor
from weavegen.agents.dialogue import task_of
from weavegen.config import Config
from weavegen.engine import job_files
from weavegen.engine.document_folder import read_folder
from weavegen.engine.mcp_file import servers_of
from weavegen.errors import ChatOnly, ModelError, TransientError, UsageError, WeavegenError
from weavegen.harbor.folder import pack, read_task, solution_folder, stretched, task_folders
from weavegen.kernel.packages import Packages
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import MOST, Settings, check_json, renamed
from weavegen.kernel.settings import settings as read_settings
from weavegen.linting.lint import syntax_error
from weavegen.pool.client import ModelClient
from weavegen.pool.served import ServedModel, serving
from weavegen.sandbox import images, starting_files
from weavegen.sandbox import packages as box_packages
from weavegen.sandbox.environment import dry_run
from weavegen.sandbox.grading import declared
from weavegen.sandbox.providers import Limits, provider
from weavegen.services import fleet, pool_members, postgres, redis, schema
from weavegen.store import documents as document_rows
from weavegen.store import jobs
from weavegen.store.jobs import Order
from weavegen.store.session import database
from weavegen.trace.render import clean, one_line
from weavegen.version import __version__

log = logging.getLogger(__name__)
BOOTSTRAPS = Path(__file__).resolve().parents[2] / "bootstraps"  # the project's own bootstrap files
MAX_TRACES = 1_000_000
"""Traces of one job. Their rows are built in memory."""
MAX_FILE_CHARS = 2**26
LOGPROBS = frozenset({"weave", "planning"})  # agents that score candidates
WITHOUT_MODEL = frozenset({"nop", "oracle"})  # agents that ask no model
ANSWER_SECONDS = 10.0
MAX_DRY_RUNS = 8
"""At most this many bootstrap files of a job are run once before it is enqueued. Others may fail in their traces."""
NETWORK = "%d of %d tasks (such as %s) let their tests use the network: give --network host if these need it, or none"
TASK_EXAMPLE = '{"task": "Count the lines of all files in /etc"}'
ROW_EXAMPLE = '{"bootstrap": "bootstraps/tictactoe.py", "n": 4, "params": {"opponent": "minimax"}}'
T = TypeVar("T")


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a jobs file: `n` traces of a bootstrap file or of a task."""

    bootstrap: str | None = None
    task: str | dict[str, Any] | None = None
    n: int = 1
    params: dict[str, Any] = {}
    seed: int | None = None


def enqueue(
    *files: str | Path,
    traces: Sequence[Order] = (),
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
    template: str | None = None,
    evaluator: str | None = None,
    student: str | None = None,
    packages: str | Path | None = None,
    environment: str | Path | None = None,
    files_folder: str | Path | None = None,
    mcp: str | Path | None = None,
) -> int:
    """Enqueue `n` traces of each bootstrap file or task. Returns the job's id.

    Raises UsageError before it writes anything.
    traces: further traces of the job.
    settings: differences from the defaults (docs/settings.md), such as `{"ticks": 10}`.
    params: `args.params` of the bootstrap file.
    check: run each bootstrap file once in a box first.
    tasks: for agents that take tasks; a text, or an object with the fields of the agent's task.
    documents: a folder that the agent research may read. Its files are copied now.
    user: who enqueues the job; by default WEAVEGEN_USER or the login name.
    evaluator: the model that answers the yes/no questions; by default the one that writes.
    template: a chat template instead of the model's own (weavegen/chat_template.py).
    student: the model that is to learn from the traces, if `model` is its teacher.
    packages: a requirements file with what its Python code can import, instead of the default packages.
    files_folder: a folder with the initial files of /app.
    environment: instead of `packages` a virtual environment, or a folder of packages, on each execute host.
    mcp: a JSON file with MCP servers, whose tools the model may call (docs/mcp.md).
    """
    traces = [*traces, *orders(files, n, params, agent=agent), *task_orders(tasks, n)]
    if not traces:
        raise UsageError("nothing to enqueue: name at least one bootstrap file or task")
    if harbor_tasks := [order.harbor[0] for order in traces if order.harbor is not None]:
        seconds = max(sum(step.agent.seconds for step in task.steps) for task in harbor_tasks)
        settings = {"callback_seconds": min(seconds, MOST["callback_seconds"])} | dict(settings or {})
        public = sorted({task.name for task in harbor_tasks if any(step.verifier.internet for step in task.steps)})
        if public and "network" not in settings:
            log.warning(NETWORK, len(public), len({task.name for task in harbor_tasks}), ", ".join(public[:3]))
    options = job_options(name or traces[0].name, agent, model, seed, settings, user)
    for of_trace in {id(order.params): order.params for order in traces}.values():
        check_json(of_trace, "params")
    for trace_seed in {order.seed for order in traces}:
        check_seed(trace_seed)
    distinct = {order.source: order for order in traces}
    bootstraps = [order for order in distinct.values() if not is_task(order, AGENTS[agent], agent)]
    if agent == "oracle" and not all(order.harbor for order in traces):
        raise UsageError("the agent oracle runs the solutions of Harbor tasks: give --harbor")
    for order in bootstraps:
        compile_bootstrap(order)
    check_json({"evaluator": evaluator, "student": student}, "the job")
    chosen = choose_packages(config.load(), packages, environment)
    archive = pack_files(traces, files_folder)
    if check:
        runs = [order for order in bootstraps if order.harbor is None and (mcp is None or "mcp__" not in order.source)]
        for order in runs[:MAX_DRY_RUNS]:
            try_bootstrap(order, read_settings(options["settings"]), chosen, archive)
    servers = None if mcp is None else servers_of(read(mcp), mcp, agent)
    own_template = None if template is None else chat_template.read(template)
    texts = {} if documents is None else read_folder(documents)
    with database().begin() as conn:
        others: dict[str, Any] = {"evaluator": evaluator, "student": student, "packages": chosen, "files": archive}
        job_id = jobs.enqueue(conn, traces, template=own_template, mcp_servers=servers, **others, **options)
        if texts:
            document_rows.save(conn, job_id, texts)
    return job_id


def orders(
    files: Iterable[str | Path], n: int = 1, params: Mapping[str, Any] | None = None, *, agent: str = "weave"
) -> list[Order]:
    """`n` traces of each file. A name that is not a file is a glob pattern. Raises UsageError.

    A Python file that a pattern matches is left out if it registers no action: it is a module of another file. For
    agents that take tasks, other files are tasks.
    """
    takes_tasks = agent in AGENTS and AGENTS[agent].task is not None
    orders: list[Order] = []
    for file in map(str, files):
        is_pattern = not exists(file)
        before = len(orders)
        for path in matching(file) if is_pattern else [file]:
            source = read(path)
            if takes_tasks and path.endswith(".json"):
                hint = f"give a JSON object, such as {TASK_EXAMPLE}"
                source = task_source(decoded(source, dict[str, Any], path, hint))
            elif takes_tasks and not path.endswith(".py"):
                source = task_source(source)
            elif is_pattern and "self.add_action(" not in source:
                continue
            needed = job_files.neighbours(Path(path), source)
            orders += repeated(Order(clean(Path(path).name), source, dict(params or {}), files=needed), n, len(orders))
        if len(orders) == before:
            raise UsageError(f"{file} does not exist: give the path of a bootstrap file")
    check_params(params or {}, orders)
    return orders


def harbor_orders(paths: Sequence[str], agent: str, n: int, timeouts: float, skip: bool) -> list[Order]:
    """`n` traces of each Harbor task in folders, whose time limits are multiplied by `timeouts`.

    Raises UsageError, before anything starts, if tasks can't run. `skip`: leave them out, with a warning.
    """
    own = config.load()
    if agent not in harbor.AGENTS:
        raise UsageError(f"{agent} takes no Harbor tasks: give --agent, one of {', '.join(harbor.AGENTS)}")
    if provider(own.sandbox).name == "none":
        raise UsageError("Harbor tasks need isolation: unset WEAVEGEN_SANDBOX")
    images.require_builder()
    folders, orders = task_folders(list(paths)), list[Order]()
    refused: dict[str, list[str]] = {}  # names of tasks, by the reason
    for folder in folders:
        try:
            order = harbor_order(folder, agent, timeouts)
        except UsageError as error:
            if len(folders) == 1:
                raise
            if skip:
                log.warning("left out: %s", error)
            else:
                refused.setdefault(str(error).removeprefix(f"{folder.name}: "), []).append(folder.name)
        else:
            orders += repeated(order, n, len(orders))
    if refused:
        ordered = sorted(refused.items(), key=lambda item: -len(item[1]))
        told = [f"{len(names):,} because {why} (such as {', '.join(names[:3])})" for why, names in ordered]
        count = f"{sum(map(len, refused.values())):,} of {len(folders):,}"
        raise UsageError(f"{count} tasks can't run: {'; '.join(told)}; --skip-unsupported leaves them out")
    return orders


def harbor_order(folder: Path, agent: str, timeouts: float) -> Order:
    """A trace of a Harbor task. Raises UsageError if it can't run."""
    task = read_task(folder)
    if len(task.steps) > 1 and agent not in harbor.SEVERAL_STEPS:
        raise UsageError(f"{folder.name}: it has several steps: give --agent, one of {', '.join(harbor.SEVERAL_STEPS)}")
    scripts = [solution_folder(folder, step.name) / "solve.sh" for step in task.steps]
    if agent == "oracle" and not all(script.is_file() for script in scripts):
        raise UsageError(f"{folder.name}: there is no solution/solve.sh, which the agent oracle runs")
    source = harbor.bootstrap_of(task) if agent == "weave" else task_source(task.steps[0].instruction)
    return Order(clean(task.name), source, harbor=(stretched(task, timeouts), pack(folder)))


def task_orders(tasks: Iterable[str | Mapping[str, Any]], n: int = 1) -> list[Order]:
    """`n` traces of each task. Raises UsageError."""
    if isinstance(tasks, str | Mapping):  # whose letters or keys would be tasks
        raise UsageError("tasks is a single task: give a list of tasks, such as tasks=[task]")
    orders: list[Order] = []
    for task in tasks:
        name = task if isinstance(task, str) else next((str(text) for text in task.values() if text), "task")
        orders += repeated(Order(one_line(name)[:60] or "task", task_source(task)), n, len(orders))
    return orders


def task_source(task: str | Mapping[str, Any]) -> str:
    """The JSON of a task. A text becomes the field `task`."""
    value = {"task": clean(task.strip())} if isinstance(task, str) else dict(task)
    check_json(value, "the task")
    return msgspec.json.encode(value).decode()


def decoded(text: str, type: type[T], place: str, hint: str) -> T:
    """JSON as `type`. Raises UsageError that names the place."""
    try:
        return msgspec.json.decode(text, type=type)
    except RecursionError:
        raise UsageError(f"{place}: nested too deep: give something flatter") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UsageError(f"{place}: {error}; {hint}") from None


def rows(path: str | Path) -> list[Order]:
    """The traces of a jobs file: one JSON object per line, as in Row. Raises UsageError."""
    orders: list[Order] = []
    sources: dict[Path, tuple[str, dict[str, bytes]]] = {}  # text, and the modules beside the file
    hint = f"a row has these keys: {', '.join(Row.__struct_fields__)}"
    for number, line in enumerate(read(path).split("\n"), 1):  # splitlines would split inside JSON strings
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        row = decoded(line, Row, place, hint)
        if row.task is not None and row.params:
            raise UsageError(f"{place}: a task takes no params: write what it needs into the task")
        if row.task is not None and row.bootstrap is None:
            order = dataclasses.replace(task_orders([row.task])[0], seed=row.seed)
        elif row.bootstrap is not None and row.task is None:
            file = Path(row.bootstrap) if exists(row.bootstrap) else Path(path).parent / row.bootstrap
            if file not in sources:
                source = read(file)
                sources[file] = source, job_files.neighbours(file, source)
            source, needed = sources[file]
            order = Order(clean(file.name), source, row.params, row.seed, needed)
            check_params(row.params, [order])
        else:
            raise UsageError(f"{place}: give a bootstrap or a task: one of them")
        orders += repeated(order, row.n, len(orders))
    if not orders:
        raise UsageError(f"{path} has no rows: give one JSON object per line, such as {ROW_EXAMPLE}")
    return orders


def job_options(
    name: str, agent: str, model: str | None, seed: int | None, settings: Mapping[str, Any] | None, user: str | None
) -> dict[str, Any]:
    """The checked arguments of `jobs.enqueue` apart from the orders. Raises UsageError."""
    if agent not in AGENTS:
        raise UsageError(f"there is no agent {agent!r}: choose one of {', '.join(AGENTS)}")
    values = renamed(dict(settings or {}), warn=True)
    for other in read_settings(values).delegates.keys() - AGENTS.keys():
        raise UsageError(f"settings: delegates: there is no agent {other!r}: choose one of {', '.join(AGENTS)}")
    check_json({"name": name, "model": model}, "the job")
    return {
        "name": name, "agent": agent, "model": model, "seed": job_seed(seed), "settings": values,
        "version": __version__, "enqueued_by": config.load().user if user is None else config.person(user, "--user"),
    }  # fmt: skip


def is_task(order: Order, agent: Agent, name: str) -> bool:
    """Whether an order is a task; else it is a bootstrap file. Raises UsageError if the agent does not take it."""
    if agent.task is None:
        if order.source.startswith('{"'):
            others = ", ".join(other for other, found in AGENTS.items() if found.task and other not in WITHOUT_MODEL)
            raise UsageError(f"{name} takes bootstrap files, not tasks: give --agent, one of {others}")
        return False
    try:
        task = task_of(order.source, agent.task)
        check_json(msgspec.to_builtins(task), order.name)  # a cut emoji, for example, would stop its first tick
    except msgspec.ValidationError as error:
        fields = msgspec.structs.fields(agent.task)
        keys = ", ".join(field.name if field.required else f"[{field.name}]" for field in fields)
        raise UsageError(f"{order.name}: {error}; a task of {name} is an object: {keys}") from None
    if task is None and not agent.bootstraps:
        raise UsageError(f"{order.name} is a bootstrap file, and {name} takes tasks: give --task, or .md or .json")
    return task is not None


def check_services(
    config: Config,
    model: str | None,
    agent: str = "weave",
    *,
    evaluator: str | None = None,
    researcher: str | None = None,
    workers: bool = False,
) -> list[ServedModel]:
    """The model as each of its servers lists it; none for agents that need none.

    Raises UsageError unless database, broker and model servers answer, and with `workers` also the workers. A server
    that has only a chat API can serve neither an agent that needs logprobs nor its evaluator.
    """
    postgres.check(config)
    redis.check(config)
    with database().connect() as conn:
        schema.check(conn)
        members = pool_members.members(conn, config)
    if agent in WITHOUT_MODEL:
        return []
    members.require()
    writers = serving(members.keys, model)
    scoring = {*writers, *(serving(members.keys, evaluator) if evaluator is not None else ())}
    if researcher is not None:
        serving(members.keys, researcher)
    if agent in LOGPROBS:
        require_completions({url: members.keys[url] for url in scoring})
    if workers and not fleet.serves(config):
        raise UsageError("no worker answers: start them with `weavegen up`")
    return list(writers.values())


def require_completions(keys: Mapping[str, str]) -> None:
    """Raise UsageError if one of the servers has only a chat API. `keys`: API keys by URL.

    Servers that do not answer are left out.
    """
    for url, key in keys.items():
        client = ModelClient(url, key, None, timeout=ANSWER_SECONDS)
        try:
            client.require_completions()
        except ChatOnly as error:
            others = ", ".join(agent for agent in AGENTS if agent not in LOGPROBS | WITHOUT_MODEL)
            raise UsageError(f"{error}; or give --agent, one of {others}") from None
        except (TransientError, ModelError):
            continue
        finally:
            client.close()


def read(path: str | Path) -> str:
    """A text file, without a byte order mark. Raises UsageError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_FILE_CHARS + 1)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; give the path of a file") from None
    except ValueError:  # the name has a NUL or a lone surrogate
        raise UsageError(f"{str(path)!a} can't be the name of a file; give the path of a file") from None
    if len(text) > MAX_FILE_CHARS:
        raise UsageError(f"{path} is longer than {MAX_FILE_CHARS:,} characters: give a smaller file")
    return text


def exists(path: str | Path) -> bool:
    """Whether a file exists; False for a text that can't be a file's name."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def matching(pattern: str) -> list[str]:
    """The paths that match a glob pattern, sorted."""
    try:
        return sorted(glob.glob(pattern))
    except (OSError, ValueError):
        return []


def repeated(order: Order, n: int, before: int = 0) -> list[Order]:
    """The order `n` times, with a seed for each, for a job that has `before` orders already. Raises UsageError."""
    if n < 1:
        raise UsageError(f"n is {n}: give 1 or more")
    if n > MAX_TRACES - before:
        raise UsageError(f"more than {MAX_TRACES:,} traces in one job: enqueue several jobs")
    check_seed(order.seed)
    if order.seed is None or n == 1:
        return [order] * n
    # With equal seeds they would all be the same trace.
    seeds = (derive_seed(order.seed, "trace", number) for number in range(1, n + 1))
    return [dataclasses.replace(order, seed=seed) for seed in seeds]


def job_seed(seed: int | None) -> int:
    """The seed of a job: `seed`, or a random one. Raises UsageError."""
    check_seed(seed)
    return random.SystemRandom().getrandbits(48) if seed is None else seed


def check_seed(seed: int | None) -> None:
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise UsageError("a seed has more than 64 bits: give a smaller one")


def check_params(params: Mapping[str, Any], orders: Iterable[Order]) -> None:
    """Raise UsageError for a parameter that no file, and no module beside the files, names."""
    files = {order.source: order for order in orders}.values() if params else ()
    text = "".join(order.source + b"".join(order.files.values()).decode(errors="replace") for order in files)
    for name in params:
        if not any(form in text for form in (f'"{name}"', f"'{name}'", f"{name}=")):
            raise UsageError(f"no file has the parameter {name!r}: a file names those that it reads")


def compile_bootstrap(order: Order) -> None:
    """Raise UsageError if the file is not a legal part of a trace."""
    if clean(order.source) != order.source.replace("\r\n", "\n"):
        raise UsageError(f"{order.name} holds control characters: remove them")
    if error := syntax_error(order.source):
        raise UsageError(f"{order.name} does not compile: {error}")
    try:
        declared(order.source)
    except UsageError as wrong:
        raise UsageError(f"{order.name}, {wrong}") from None


def choose_packages(
    own: Config, requirements: str | Path | None = None, environment: str | Path | None = None
) -> Packages | None:
    """The packages of a requirements file or of a folder; the default ones if neither is given. Raises UsageError."""
    if requirements is not None and environment is not None:
        raise UsageError("give --packages or --environment, not both")
    if requirements is not None:
        return box_packages.from_file(own, requirements)
    return box_packages.usual(own) if environment is None else box_packages.from_folder(environment)


def pack_files(orders: Sequence[Order], folder: str | Path | None = None) -> bytes | None:
    """The archive of the files that /app begins with; None for none. Raises UsageError."""
    own = {} if folder is None else job_files.read_files(folder)
    needed = {id(order.files): order.files for order in orders}.values()
    files = job_files.merged([own, *needed])
    return starting_files.pack(files) if files else None


def files_here(own: Config, archive: bytes | None) -> Path | None:
    """The folder with the files of an archive on this host."""
    if archive is None:
        return None
    return starting_files.unpacked(own, starting_files.sha256(archive), lambda: archive)


def try_bootstrap(order: Order, numbers: Settings, packages: Packages | None, archive: bytes | None) -> None:
    """Run the file in a box. Raise UsageError if it raises, or registers no action."""
    own, limits = config.load(), Limits(seconds=numbers.callback_seconds)
    folder = box_packages.on_this_host(own, packages)
    try:
        files = files_here(own, archive)
        [executed] = dry_run(
            own, order.source, order.params, limits=limits, network=numbers.network, packages=folder, files=files
        )
    except UsageError:
        raise
    except WeavegenError as error:
        raise UsageError(f"{order.name} could not be tried: {error}") from None
    if executed.error is not None:
        reason = f"{executed.error.type}: {executed.error.message}"
        raise UsageError(f"{order.name} fails when it is run: {reason}; fix it first")
