"""Reads the folder of a Harbor task: checks all that it asks for, and packs its files.

A task that needs something unsupported is refused, by name, before anything starts. docs/harbor.md has the format.
"""

import io
import os
import re
import tarfile
import tomllib
from collections.abc import Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from weavegen import folders
from weavegen.errors import UsageError, required
from weavegen.kernel.harbor import HarborStep, HarborTask, Phase
from weavegen.kernel.mcp import McpServer
from weavegen.sandbox import images
from weavegen.variables import lacks

PARTS = ("environment", "tests", "solution", "steps")
"""The folders of a task whose files are packed."""
MAX_BYTES = 256 * 2**20
"""Bytes of all files of a task."""
MAX_TOML_BYTES = 2**20
FILE_TIME = 1_735_689_600
"""Modification time of all files of a task, so that equal files give equal images: the beginning of 2025."""
Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=200)]
User = str | int | None
Network = Literal["public", "no-network", "allowlist"] | None


class Table(msgspec.Struct, kw_only=True, frozen=True):
    """A table of task.toml. Keys that it does not name are ignored, as Harbor ignores them."""


class AgentTable(Table, frozen=True):
    timeout_sec: Positive | None = None
    user: User = None
    network_mode: Network = None
    env: dict[str, str] = {}


class VerifierTable(AgentTable, frozen=True):
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class SolutionTable(Table, frozen=True):
    env: dict[str, str] = {}


class McpTable(McpServer, kw_only=True, frozen=True):
    name: Name
    transport: str = "stdio"


class EnvironmentTable(Table, frozen=True):
    build_timeout_sec: Positive = 600.0
    docker_image: str | None = None
    os: str = "linux"
    cpus: Positive | None = None
    memory_mb: Positive | None = None
    storage_mb: Positive | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: int | None = 0
    tpu: Any = None
    allow_internet: bool = True
    network_mode: Network = None
    workdir: str | None = None
    env: dict[str, str] = {}
    healthcheck: dict[str, Any] | None = None
    mcp_servers: list[McpTable] = []


class StepTable(Table, frozen=True):
    name: Name
    min_reward: float | dict[str, float] | None = None
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    healthcheck: dict[str, Any] | None = None


class TaskTable(Table, frozen=True):
    name: str | None = None
    description: str | None = None
    keywords: list[str] = []


class File(Table, frozen=True):
    """A task.toml of schema 1.x, or of the older form with the key `version`."""

    schema_version: str | None = None
    version: str | float | None = None
    task: TaskTable = TaskTable()
    metadata: dict[str, Any] = {}
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    solution: SolutionTable = SolutionTable()
    environment: EnvironmentTable = EnvironmentTable()
    steps: list[StepTable] = []
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"


def task_folders(paths: list[str]) -> list[Path]:
    """The task folders that `paths` name: tasks, or folders of tasks. Raises UsageError."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = [path] if (path / "task.toml").exists() else sorted(entry.parent for entry in path.glob("*/task.toml"))
        if not inside:
            raise UsageError(f"{path}: there is no task.toml in it: give the folder of a Harbor task, or of several")
        found += inside
    return found


def stretched(task: HarborTask, factor: float) -> HarborTask:
    """The task with time limits that are `factor` times as long, for machines that are slower than its author's."""
    steps = []
    for step in task.steps:
        phases = {"agent": step.agent, "verifier": step.verifier, "solution": step.solution}
        longer = {name: replace(phase, seconds=phase.seconds * factor) for name, phase in phases.items()}
        steps.append(replace(step, **longer))
    return replace(task, steps=tuple(steps), build_seconds=task.build_seconds * factor)


def read_task(folder: Path) -> HarborTask:
    """Read and check a task. Raises UsageError with the folder's name and the reason."""
    try:
        for path in (*folder.iterdir(), *folder.glob("steps/*"), *folder.glob("steps/*/*")):
            if not path.resolve().is_relative_to(folder.resolve()):  # the model would read files of this machine
                raise UsageError(f"{path.relative_to(folder)} is a link out of the task: put a file or a folder there")
        return checked(folder, parse_toml(folder))
    except UsageError as error:
        raise UsageError(f"{folder.name}: {error}") from None
    except OSError as error:
        raise UsageError(f"{folder.name}: {error.filename} can't be read: {error.strerror}") from None


def parse_toml(folder: Path) -> File:
    """Decode task.toml. Raises UsageError and OSError."""
    try:
        text = read_text(folder / "task.toml", MAX_TOML_BYTES)
        file = msgspec.convert(tomllib.loads(text), File)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"task.toml is not TOML: {error}") from None
    except RecursionError:
        raise UsageError("task.toml is nested too deep") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"task.toml: {error}") from None
    version = str(file.schema_version or file.version or "1.0")
    if version.partition(".")[0] != "1":
        raise UsageError(f"task.toml has the schema {version!r:.20}: weavegen knows 1.x")
    return file


def checked(folder: Path, file: File) -> HarborTask:
    """Check what the file and the folder ask for. Raises UsageError for what weavegen does not support."""
    environment, base = file.environment, folder / "environment"
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    tables, agents = [file.verifier, *(step.verifier for step in file.steps)], [step.agent for step in file.steps]
    has_dockerfile = "Dockerfile" in names
    places = [folder, *(step_folder(folder, step.name) for step in file.steps)]
    refusals = {
        "several containers (a compose file), and weavegen runs one": "docker-compose.yaml" in names,
        f"the operating system {environment.os!r:.20}": environment.os.lower() != "linux",
        "a GPU": bool(environment.gpus),
        "a TPU": environment.tpu is not None,
        "a health check": any([environment.healthcheck, *(step.healthcheck for step in file.steps)]),
        "an MCP server that is not started by a command": any(
            not server.command or server.transport != "stdio" for server in environment.mcp_servers
        ),
        "a list of allowed hosts (network_mode)": "allowlist"
        in (environment.network_mode, *(table.network_mode for table in (file.agent, *agents, *tables))),
        "a container of its own for the verifier": any(
            table.environment_mode == "separate" or table.environment or table.collect for table in tables
        ),
        "files of environment/ that no Dockerfile copies": environment.docker_image and names and not has_dockerfile,
        "files for a step (steps/NAME/workdir)": any((place / "workdir").exists() for place in places[1:]),
        "an earlier conversation (trajectory.json)": any((place / "trajectory.json").exists() for place in places),
        "files that are left out (.harborignore)": any(folder.glob("**/.harborignore")),
    }
    if asked := next((what for what, asks in refusals.items() if asks), None):
        raise UsageError(f"the task asks for {asked}, which is not supported")
    if not has_dockerfile and not environment.docker_image:
        raise UsageError("there is neither environment/Dockerfile nor docker_image in task.toml")
    if environment.workdir is not None and not environment.workdir.startswith("/"):
        raise UsageError(f"workdir {environment.workdir!r:.80} is not an absolute path")
    if len({step.name for step in file.steps}) < len(file.steps):
        raise UsageError("two of its steps have the same name")
    steps = tuple(checked_step(folder, file, step) for step in file.steps or [StepTable(name="")])
    if any((step.agent.user, step.agent.environ) != (steps[0].agent.user, steps[0].agent.environ) for step in steps):
        raise UsageError("its steps have different users or variables for the agent, which is not supported")
    described = {"name": file.task.name, "description": file.task.description, "keywords": file.task.keywords}
    return HarborTask(
        name=folder.resolve().name,
        steps=steps,
        reward_of_steps=file.multi_step_reward_strategy,
        context=context_of(base),
        image=environment.docker_image or None,
        build_seconds=environment.build_timeout_sec,
        workdir=environment.workdir,
        environ=checked_environ(environment.env),
        mcp_servers={
            server.name: McpServer(command=server.command, args=server.args, env=checked_environ(server.env))
            for server in environment.mcp_servers
        },
        cpus=environment.cpus or 1.0,
        memory_mb=megabytes(environment.memory_mb, environment.memory, 2048),
        storage_mb=megabytes(environment.storage_mb, environment.storage, 10240),
        metadata=msgspec.to_builtins({key: value for key, value in described.items() if value} | file.metadata),
    )


def checked_step(folder: Path, file: File, step: StepTable) -> HarborStep:
    """The only step of a task, which has no name, or one of its [[steps]]. Raises UsageError."""
    place = step_folder(folder, step.name)
    name = f"step {step.name}: " if step.name else ""
    try:
        lines = read_text(place / "instruction.md", MAX_TOML_BYTES).strip().split("\n")
    except FileNotFoundError:
        raise UsageError(f"{name}there is no instruction.md") from None
    if not (instruction := "\n".join(dropwhile(is_canary, lines)).strip()):
        raise UsageError(f"{name}instruction.md is empty")
    if not any((parent / "tests" / "test.sh").is_file() for parent in {place, folder}):
        raise UsageError(f"{name}there is no tests/test.sh")
    least = step.min_reward
    run = phase(step.agent, file.agent, file.environment, 900.0)
    return HarborStep(
        name=step.name,
        instruction=instruction,
        agent=run,
        verifier=phase(step.verifier, file.verifier, file.environment, 600.0),
        solution=msgspec.structs.replace(run, environ=checked_environ(file.solution.env)),
        min_reward=least if isinstance(least, dict) else {} if least is None else {"reward": least},
    )


def is_canary(line: str) -> bool:
    """Whether a line is a comment that marks a benchmark's text. Harbor shows no agent those that come first."""
    line = line.strip().lower()
    return "canary" in line and (line.startswith("#") or (line.startswith("<!--") and line.endswith("-->")))


def solution_folder(folder: Path, step: str) -> Path:
    """The folder with a step's own solution, or else with that of all steps."""
    own = step_folder(folder, step) / "solution"
    return own if own.is_dir() else folder / "solution"


def step_folder(folder: Path, name: str) -> Path:
    """The folder with a step's instruction, tests and solution: the task's own, if its only step has no name."""
    return folder / "steps" / name if name else folder


def phase(own: AgentTable, of_task: AgentTable, environment: EnvironmentTable, seconds: float) -> Phase:
    """A phase of a step, whose table has priority over that of the task."""
    user = of_task.user if own.user is None else own.user
    mode = own.network_mode or of_task.network_mode or environment.network_mode
    return Phase(
        seconds=own.timeout_sec or of_task.timeout_sec or seconds,
        user=None if user is None else str(user),
        environ=checked_environ(of_task.env | own.env),
        internet=mode == "public" if mode is not None else environment.allow_internet,
    )


def megabytes(number: float | None, text: str | None, default: int) -> int:
    """A size in MB. `text` is the older form, such as 4G. Raises UsageError."""
    if number is not None or text is None:
        return int(number or default)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    match = required(found, f"{text!r:.20} is not a size: write 2G, for example")
    return max(int(float(match[1]) * 1024 ** ("KMGT".index(match[2].upper()) - 1)), 1)


def checked_environ(values: Mapping[str, str]) -> dict[str, str]:
    """Environment variables. Raises UsageError for one that the execute workers could not fill in."""
    for name, value in values.items():
        if not re.fullmatch(r"\w+", name) or "\0" in value:
            raise UsageError(f"{name!r:.80} is not an environment variable")
        if reason := lacks(value):
            raise UsageError(f"the variable {name} {reason}")
    return dict(values)


def context_of(folder: Path) -> str:
    """Hash of all files from which a task's image is made."""
    return images.digest_of({path.relative_to(folder).as_posix(): content(path) for path in folder.rglob("*")})


def content(path: Path) -> bytes:
    """What a file contributes to an image: its mode and content, or where a link leads."""
    kind = b"%o " % (path.lstat().st_mode & 0o170100)
    if path.is_symlink():
        return kind + os.fsencode(os.readlink(path))
    return kind + (path.read_bytes() if path.is_file() else b"")


def read_text(path: Path, limit: int) -> str:
    """A text file. Raises UsageError and OSError."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UsageError(f"{path.name} is longer than {limit:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path.name} is not UTF-8 text") from None


def pack(folder: Path) -> bytes:
    """The task's files as a tar archive. Equal files give equal bytes. Raises UsageError."""
    paths = [path for part in PARTS for path in sorted((folder / part).rglob("*"))]  # links are not followed
    packed, size = io.BytesIO(), 0
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            entry = archive.gettarinfo(path, path.relative_to(folder).as_posix())
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = FILE_TIME, 0, 0, "", ""
            size += entry.size if entry.isfile() else 0
            if size > MAX_BYTES:
                raise UsageError(f"{folder.name}: its files have more than {MAX_BYTES >> 20} MB")
            if entry.isfile():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            elif entry.isdir() or entry.issym() or entry.islnk():
                archive.addfile(entry)
    return packed.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        folders.extract(opened, folder, "tar")
    folders.let_read(folder / "environment")  # to these files, root of a build's user namespace is an ordinary user
