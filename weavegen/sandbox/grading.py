"""Protected evaluations: checks of a bootstrap file that run where no code of the agent can reach them.

    main.task.add_evaluation("Is it sorted?", is_sorted, protected=True, files=["out.txt"], claims=["moves"])

They are read from the bootstrap's text in the database. The agent's processes are stopped, the files are copied from
their box, and the text runs in a fresh box (box/grader.py), which sends verdicts through a pipe. Only the files and
the claims come from the agent. If an evaluation could not run, `Evaluated.cause` says whose fault that is.
"""

import ast
import contextlib
import json
import os
import select
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from weavegen.config import Config
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.kernel.steps import Evaluated, Executed, Failure, SubagentState
from weavegen.python_parser import NO_PYTHON, parse
from weavegen.sandbox import groups
from weavegen.sandbox.answer import InvalidAnswer, check_value
from weavegen.sandbox.children import tail
from weavegen.sandbox.providers import Box, Handle, Limits, provider, start_main
from weavegen.sandbox.starting_files import FOLDERS, importable
from weavegen.sandbox.stopping import end, stopped

MAX_BYTES = 16 * 2**20  # bytes of all files that the evaluations of a bootstrap name
MAX_VERDICT_BYTES = 2**20
MAX_ADDRESS_SPACE = 2**30  # bytes of address space per process of the grader's box, which the watch does not check
ATTEMPTS = 3  # boxes that are tried before an evaluation counts as not evaluated because of the infrastructure
FORM = 'main.task.add_evaluation("TITLE?", FUNCTION, protected=True, files=["PATH"], claims=["VARIABLE"])'
Cause = Literal["agent", "task", "infrastructure"]
ENDED = -2
Verdicts = dict[int, dict[str, Any]]
"""Messages of box/grader.py by number: an evaluation's number, ENDED for the end, -1 for the start."""


@dataclass(frozen=True)
class Protected:
    """A protected evaluation of main's task: its title, the names of its function, files and claimed variables."""

    title: str
    callback: str
    files: tuple[str, ...]
    claims: tuple[str, ...]


Found = dict[Protected, Evaluated]


@lru_cache(256)
def declared(source: str) -> tuple[Protected, ...]:
    """Return the protected evaluations of a bootstrap's text. Raises UsageError if one is not written out."""
    try:
        tree = parse(source)
    except NO_PYTHON:
        return ()
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.keywords]
    calls = [call for call in calls if getattr(call.func, "attr", "") == "add_evaluation"]
    found = tuple(read_call(call, functions) for call in calls)
    names = {name for one in found for name in one.files}
    if any(str(folder) in names for name in names for folder in PurePosixPath(name).parents):
        raise UsageError("a file of protected evaluations is the folder of another one")
    if min(len({one.title for one in found}), len({one.callback for one in found})) < len(found):
        raise UsageError("two protected evaluations have the same title or the same function")
    return found


def read_call(call: ast.Call, functions: set[str]) -> Protected:
    """Read a registration with options. Raises UsageError."""
    with contextlib.suppress(ValueError, TypeError):
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        lists = [options.pop(name, []) for name in ("files", "claims")]
        title, callback = ast.literal_eval(call.args[0]), ast.unparse(call.args[1])
        files, claims = map(tuple, lists)
        if (
            options == {"protected": True} and ast.unparse(call.func).endswith(".task.add_evaluation")
            and isinstance(title, str) and len(title) <= 200 and title.isprintable() and callback in functions
            and all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists)
            and all(map(is_inside, files)) and all(map(str.isidentifier, claims))
        ):  # fmt: skip
            return Protected(title, callback, files, claims)
    raise UsageError(
        f"line {call.lineno}: write a protected evaluation out, as {FORM}. TITLE is one line of at most 200 "
        "characters, FUNCTION is defined at the top level, PATH is relative to /app, without `..`"
    )


def is_inside(name: str) -> bool:
    """Whether a path can only be that of a file in the workspace."""
    path = PurePosixPath(name)
    usual = str(path) == name and not path.is_absolute() and ".." not in path.parts and name != "."
    return usual and name.isprintable() and path.parts[0] not in FOLDERS


def protected(config: Config, source: str) -> tuple[Protected, ...]:
    """Like `declared`, but none without isolation, where the agent could reach a grader too."""
    return () if config.sandbox == "none" else declared(source)


def asked(evaluations: Sequence[Protected]) -> str:
    """What the live process is asked when it evaluates (`Execute.source`): "" without protected evaluations."""
    claims = sorted({name for evaluation in evaluations for name in evaluation.claims})
    titles = [evaluation.title for evaluation in evaluations]
    return json.dumps({"titles": titles, "claims": claims}) if titles else ""


def copy_files(root: int, names: Sequence[str], folder: Path) -> dict[str, str]:
    """Copy files of a workspace into `folder`. Returns, by name, why files were not copied.

    `root`: a descriptor of the workspace, whose owner may change everything in it meanwhile. No link is followed,
    nothing but a regular file is opened, and of all files together at most MAX_BYTES are read.
    """
    problems, left = {}, MAX_BYTES
    for name in names:
        try:
            data = read_regular(root, PurePosixPath(name).parts, left)
        except (OSError, ValueError) as error:
            problems[name] = f"{name}: {getattr(error, 'strerror', error)}"
            continue
        left -= len(data)
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        for above in [*PurePosixPath(name).parents][:-1]:
            (folder / above).chmod(0o755)  # the grader has another user id
        copy.write_bytes(data)
        copy.chmod(0o444)
    return problems


def read_regular(root: int, parts: Sequence[str], limit: int) -> bytes:
    """Read a file below the folder `root`. Raises OSError; ValueError if it may not be read."""
    with contextlib.ExitStack() as stack:
        place = root
        for part in parts:  # O_PATH opens nothing yet: a fifo does not block, a device does nothing
            place = stack.enter_context(opened(part, os.O_PATH | os.O_NOFOLLOW, place))
        status = os.fstat(place)
        # A hard link leads to a file of the same file system, which is the workspace and nothing else.
        if not stat.S_ISREG(status.st_mode) or status.st_dev != os.fstat(root).st_dev:
            raise ValueError("not a regular file of the workspace")
        if status.st_size > limit:
            raise ValueError(f"too large, all files together may have {MAX_BYTES:,} bytes")
        file = stack.enter_context(opened(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK))
        data = b""
        while len(data) <= limit and (more := os.read(file, min(2**20, limit + 1 - len(data)))):
            data += more
        now = os.fstat(file)
        if len(data) != now.st_size or now.st_mtime_ns != status.st_mtime_ns:
            raise ValueError("changed while it was read")
        return data


@contextlib.contextmanager
def opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_claim(text: str | None) -> Any:
    """The value of a claim. Raises InvalidAnswer."""
    try:
        value = json.loads(text or "", parse_constant=int)  # int("NaN") raises: JSON has no NaN
        check_value(value)
    except (ValueError, RecursionError):
        raise InvalidAnswer("is missing, or is not JSON of at most 100,000 characters") from None
    return value


def earlier(before: Executed | None, evaluations: Sequence[Protected]) -> dict[str, Any] | None:
    """What the bootstrap's text reads as `graded_before`: the claims and verdicts of the evaluations before these."""
    if before is None:
        return None
    claims = {}
    for name, text in before.claims.items():
        with contextlib.suppress(InvalidAnswer):
            claims[name] = check_claim(text)
    values = {evaluated.title: evaluated.value for evaluated in before.evaluations if evaluated.protected}
    return {"claims": claims, "verdicts": {one.callback: values.get(one.title) for one in evaluations}}


@dataclass(frozen=True)
class Grader:
    """Grades a trace, in boxes that are neither the agent's nor another trace's. All it knows is from the database.

    `source`: the bootstrap's text; `budget`: minutes; `before`: result of the evaluations before these; `packages`,
    `files`: the folders of the trace's box.
    """

    config: Config
    trace_id: int
    limits: Limits
    source: str
    seed: int = 0
    params: dict[str, Any] | None = None
    budget: float = 360.0
    before: Executed | None = None
    packages: Path | None = None
    files: Path | None = None

    def grade(self, handle: Handle, executed: Executed) -> Executed:
        """Run the protected evaluations, and add their verdicts to the result of the evaluate step.

        `handle`: the agent's box, whose processes are stopped meanwhile. Raises EnvironmentFailure if it has ended.
        """
        evaluations, workspace = declared(self.source), self.config.workspaces / str(self.trace_id)
        try:
            workspace.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
            with (
                tempfile.TemporaryDirectory(prefix="grader-", dir=workspace) as folder,
                stopped(handle) as still,
                opened(f"/proc/{handle.pid}/root", os.O_PATH) as top,
                opened("app", os.O_PATH | os.O_NOFOLLOW, top) as root,
            ):
                if not handle.alive():  # the number may be that of another process by now
                    raise ProcessLookupError
                copies = Path(folder, "app")
                copies.mkdir(mode=0o755)
                problems = copy_files(root, sorted({name for one in evaluations for name in one.files}), copies)
                faults = {one: fault(one, problems, executed.claims, still) for one in evaluations}
                found = {one: not_evaluated(one.title, "agent", wrong) for one, wrong in faults.items() if wrong}
                found |= self.try_boxes([one for one in faults if not faults[one]], executed.claims, copies)
        except OSError as error:
            if not handle.alive():
                raise EnvironmentFailure("the environment process died before its files could be read") from None
            found = {one: not_evaluated(one.title, "infrastructure", str(error)) for one in evaluations}
        return with_verdicts(executed, {one: found[one] for one in evaluations})

    def try_boxes(self, evaluations: Sequence[Protected], claims: dict[str, str], copies: Path) -> Found:
        """Run evaluations in a box, and again in another one if that box is lost."""
        why = ""
        for attempt in range(ATTEMPTS if evaluations else 0):
            time.sleep(0.2 * attempt)
            try:
                verdicts = self.run_box(evaluations, claims, copies)
                return {one: evaluated(one, number, verdicts) for number, one in enumerate(evaluations)}
            except (EnvironmentFailure, OSError, msgspec.MsgspecError) as error:
                why = str(error)
        return {one: not_evaluated(one.title, "infrastructure", why) for one in evaluations}

    def run_box(self, evaluations: Sequence[Protected], claims: dict[str, str], copies: Path) -> Verdicts:
        """Run a box. Raises EnvironmentFailure if it is lost, which its own code can't cause."""
        sandbox, limits = provider(self.config.sandbox), self.limits
        reader, writer = os.pipe()
        with open(reader, "rb", buffering=0) as pipe:
            with open(writer, "wb", buffering=0):
                spec = {
                    "verdicts": writer, "seconds": limits.seconds, "seed": self.seed,
                    "args": {"budget": self.budget, "port": 5000, "model_name": "none", "params": self.params or {}},
                    "source": self.source, "before": earlier(self.before, declared(self.source)),
                    "evaluations": [(one.callback, {name: claims[name] for name in one.claims}) for one in evaluations],
                }  # fmt: skip
                box = Box(
                    workspace=copies,
                    uid=sandbox.uid(self.trace_id, self.config.workspaces / "graders"),  # limits are per user
                    log=copies.parent / "log",
                    limits=replace(limits, address_space=MAX_ADDRESS_SPACE, most_address_space=MAX_ADDRESS_SPACE),
                    environ={"PYTHONHASHSEED": str(self.seed % 2**32)},
                    folders=importable(self.files) | {entry.name: entry for entry in copies.iterdir()},
                    descriptors=(writer,),
                    packages=self.packages,
                    files=self.files,
                )
                # The grader is process 1 itself, which no process of the box can kill.
                handle = start_main(sandbox, "grader", spec, box, first="")
            try:
                verdicts = read_verdicts(pipe.fileno(), limits.start + limits.seconds + limits.grace)
                if verdicts and groups.killed_for_memory(handle.groups):
                    verdicts[ENDED] = {"ended": "it took too much memory"}
            finally:
                end(handle)
        if ENDED not in verdicts:
            raise EnvironmentFailure(f"the grader's box ended early: {tail(box.log) or 'it printed nothing'}")
        return verdicts


def fault(evaluation: Protected, problems: dict[str, str], claims: dict[str, str], still: bool) -> str:
    """Why the agent's answers can't be evaluated; "" if they can be."""
    wrong = [problems[name] for name in evaluation.files if name in problems]
    for name in evaluation.claims:
        try:
            check_claim(claims.get(name))
        except InvalidAnswer as error:
            wrong.append(f"the variable {name} {error}")
    return "; ".join(wrong if still else [*wrong, "its processes can't be stopped"])


def not_evaluated(title: str, cause: Cause | None, why: str) -> Evaluated:
    text = f"not evaluated ({cause}): {why}"
    failure = Failure(type="NotEvaluated", message=text, traceback=f"NotEvaluated: {text}", stage="evaluation")
    return Evaluated(title=title, scope="task", error=failure, protected=True, cause=cause)


def evaluated(evaluation: Protected, number: int, verdicts: Verdicts) -> Evaluated:
    """The result of the evaluation with this number."""
    if (verdict := verdicts.get(number)) is None:
        return not_evaluated(evaluation.title, "task", f"no verdict, its process has ended: {verdicts[ENDED]['ended']}")
    error = msgspec.convert(verdict.get("error"), Failure | None)
    marks: dict[str, Any] = {"title": evaluation.title, "scope": "task", "protected": True}
    return Evaluated(**marks, value=verdict.get("value"), error=error, cause="task" if error else None)


def read_verdicts(pipe: int, seconds: float) -> Verdicts:
    """Read messages until the pipe closes, which means that process 1 of the box, and so all others, have ended."""
    data, poll, deadline = b"", select.poll(), time.monotonic() + seconds
    poll.register(pipe, select.POLLIN)
    while in_time := bool(poll.poll(max(deadline - time.monotonic(), 0) * 1000)):
        if not (more := os.read(pipe, 2**16)) or len(data) > MAX_VERDICT_BYTES:
            break
        data += more
    verdicts: Verdicts = {}
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        message = msgspec.json.decode(line, type=dict[str, Any])
        verdicts[message["number"]] = message
    if verdicts and not in_time:  # without a message it has not even started, and that is not the task's fault
        verdicts[ENDED] = {"ended": "its time was up"}
    return verdicts


def with_verdicts(executed: Executed, found: Found) -> Executed:
    """Replace whatever the live process says about evaluations with these titles by the verdicts."""
    titles = {evaluation.title for evaluation in found}
    values = {evaluation.callback: verdict.value for evaluation, verdict in found.items()}

    def correct(state: SubagentState) -> SubagentState:
        shown = (*found.values(), *(one for one in state.evaluations if one.title not in titles))
        returned = {**state.returned, **values} if isinstance(state.returned, dict) else state.returned
        return msgspec.structs.replace(state, evaluations=shown, returned=returned)

    others = [one for one in executed.evaluations if one.scope == "tick" or one.title not in titles]
    return change_main(msgspec.structs.replace(executed, evaluations=(*found.values(), *others)), correct)


def show_again(executed: Executed, before: Executed | None) -> Executed:
    """Show the evaluations of main's task as they were when they last ran: the live process does not know verdicts."""
    if not (shown := [state.evaluations for state in (before.subagents if before else ()) if state.name == "main"]):
        return executed
    return change_main(executed, lambda state: msgspec.structs.replace(state, evaluations=shown[0]))


def change_main(executed: Executed, change: Callable[[SubagentState], SubagentState]) -> Executed:
    subagents = tuple(change(state) if state.name == "main" else state for state in executed.subagents)
    return msgspec.structs.replace(executed, subagents=subagents)
