"""Runs the verifier of a Harbor task, in a box of its own, over the files that the agent has left.

Meanwhile the agent's processes do not run. The tests come from the database, and the image's programs are the original
ones (sandbox/programs.py). Rewards are read as in Harbor: reward.json with flat numbers, else reward.txt. A missing
reward is not 0: the step counts as not evaluated, with the cause.
"""

import contextlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from weavegen import folders
from weavegen.box.plain import clean
from weavegen.config import Config
from weavegen.harbor.folder import solution_folder, step_folder, unpack
from weavegen.kernel.harbor import HarborStep, HarborTask, Phase
from weavegen.kernel.steps import Evaluated
from weavegen.sandbox import command, image_root, images, programs, userns
from weavegen.sandbox.bubblewrap import IMAGE_PATH
from weavegen.sandbox.grading import Cause, not_evaluated
from weavegen.sandbox.providers import Limits
from weavegen.variables import resolved_values

MAX_REWARD_BYTES = 2**20
NETWORK_ERRORS = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|Temporary failure resolving|unable to resolve host address|getaddrinfo (failed|EAI_AGAIN|ENOTFOUND)",
    re.IGNORECASE,
)
"""What programs print if they have no network. A refused connection is no sign: an agent's server may not run."""
LIMITS = Limits(
    seconds=120.0, processes=2048, files=4096, sockets=4096, inodes=1_000_000, cpu=1e9, file_size=2**40, start=60.0
)
"""Limits of boxes with an image, in addition to those that a task gives."""


@dataclass(frozen=True)
class Verdict:
    """What the verifier found."""

    rewards: dict[str, float] | None
    """By name; None: not evaluated."""
    cause: Cause | None
    """Whose fault it is that there are none."""
    why: str
    output: str
    """The end of what the tests printed."""
    changed: tuple[str, ...]
    """Files of the agent that the tests did not see, because they would have changed the programs that run them."""
    seconds: float
    has_json: bool = False
    """Whether there was a reward.json, which has priority over reward.txt."""

    @property
    def passed(self) -> bool:
        return self.rewards is not None and max(self.rewards.values()) > 0


def evaluations_of(verdict: Verdict) -> tuple[Evaluated, ...]:
    """A verdict as evaluations of the task: one for each reward."""
    if verdict.rewards is None:
        return (not_evaluated("reward", verdict.cause, verdict.why),)
    rewards = verdict.rewards.items()
    return tuple(Evaluated(title=name, value=value, scope="task", protected=True) for name, value in rewards)


class Invalid(Exception):
    """The verifier left no valid reward. The message says what is wrong."""


def limits_of(task: HarborTask) -> Limits:
    memory, disk = task.memory_mb << 20, task.storage_mb << 20
    return replace(LIMITS, memory=memory, disk=disk, file_size=disk, cores=task.cpus)


def root_of(config: Config, task: HarborTask, image: images.Image, phase: Phase, changes: Path) -> image_root.Root:
    """The image as the root of a box in which a phase of the task runs."""
    # A layer with the folders for logs, in which any user of an image may write. Other users of the host may not.
    logs = folders.once(folders.private(config.home) / "harbor" / "logs", partial(make_logs, mode=0o700))
    return image_root.Root(
        store=images.layer_folder(config),
        layers=f"{userns.STAGE}/logs:{image.layers}",
        folders={"logs": logs},
        changes=changes,
        environ={"PATH": IMAGE_PATH, **image.environ, **resolved_values(task.environ | phase.environ)},
        workdir=task.workdir or image.workdir,
        user=image.user if phase.user is None else phase.user,
    )


def task_files(config: Config, digest: str, load: Callable[[], bytes]) -> Path:
    """The folder with a task's files on this host; `load` gives the archive if it is missing."""
    place = folders.private(config.home) / "harbor" / digest
    with contextlib.suppress(FileNotFoundError):
        os.utime(place)  # images.prune leaves what was used lately
    return folders.once(place, lambda draft: unpack(load(), draft))


def image_of(config: Config, task: HarborTask, files: Path, in_use: images.InUse | None = None) -> images.Image:
    """The task's image on this host, which is made if it is missing. `in_use`, and what it raises: see images.image.

    Tasks with equal files have images of their own, so that the end of one removes none of another. Pulled bases do not
    count as a part: an image must have the same digest before and after the pull.
    """
    recipe = files / "environment"
    text = f"FROM {task.image}" if task.image else (recipe / "Dockerfile").read_text(errors="replace")
    parts = {"name": task.name.encode(), "context": task.context.encode(), "recipe": text.encode()}
    for name, source in images.added(config).items():  # `FROM debian:$TAG` and `COPY --from=` may use one too
        if re.split("[:@]", name.rpartition("/")[2])[0] in text:
            parts[f"base {name}"] = json.dumps(source).encode()
    digest = images.digest_of(parts)
    return images.image(config, digest, task.name, recipe, task.build_seconds, task.image, in_use)


@dataclass(frozen=True)
class Verifier:
    """Verifies one step of a trace's task. `files`: the task's folder (harbor/folder.py); `network`: the job's."""

    config: Config
    trace_id: int
    task: HarborTask
    step: HarborStep
    image: images.Image
    files: Path
    network: str

    def verify(self, agent: Path, *, trusted: bool) -> Verdict:
        """Run the tests over an agent's changes, the folder `upper` of its box.

        `trusted`: the task's own solution made the changes, so that it may change programs too. Raises
        EnvironmentFailure if the box can't start.
        """
        place = self.config.workspaces / str(self.trace_id) / "verifier"
        try:
            verdict = self.attempt(place / "first", agent, guarded=not trusted)
            # Honest work may need hidden changes; a forgery certainly does. As they look alike, there is no reward.
            doubtful = verdict.changed and not verdict.passed
            if doubtful and self.attempt(place / "plain", agent, guarded=False).rewards != verdict.rewards:
                why = "the tests end otherwise with the agent's changes to programs of the image: "
                return replace(verdict, rewards=None, cause="agent", why=why + ", ".join(verdict.changed))
            return self.explain(verdict, place)
        finally:
            image_root.remove(place)

    def attempt(self, place: Path, agent: Path | None, *, guarded: bool) -> Verdict:
        """Run the tests once. `agent` None: over the unchanged image."""
        image_root.remove(place)
        changes = place / "changes"
        root = root_of(self.config, self.task, self.image, self.step.verifier, changes)
        root.prepare()
        hidden: tuple[str, ...] = ()
        if agent is not None:
            root = replace(root, folders=root.folders | {"agent": agent}, layers=f"{userns.STAGE}/agent:{root.layers}")
        if agent is not None and guarded:
            guard = place / "guard"
            guard.mkdir(mode=0o755)
            os.chown(guard, userns.owner(0), userns.owner(0))
            try:
                found = programs.guard(root.store, self.image.layers, agent, guard, root.environ["PATH"], root.workdir)
            except OSError as error:  # the agent's files may be the reason: `explain` finds out
                return Verdict(None, None, str(error), "", (), 0.0)
            hidden = found.changed
            layers = f"{userns.STAGE}/guard:{root.layers}"
            root = replace(root, folders=root.folders | {"guard": guard}, layers=layers, programs=found.programs)
        self.copy_tests(changes)
        ran = self.run(root, self.step.verifier, "/tests/test.sh", "verifier")
        try:
            rewards = None if ran.ended else read_rewards(changes / "upper")
            why = ran.ended
        except Invalid as error:
            rewards, why = None, str(error)
        has_json = os.path.lexists(changes / "upper" / "logs" / "verifier" / "reward.json")
        return Verdict(rewards, None, why, ran.output, hidden, ran.seconds, has_json)

    def copy_tests(self, changes: Path) -> None:
        """Put the tests and empty folders for logs into the verifier's own layer, above what an agent may have left."""
        upper = changes / "upper"
        for place in dict.fromkeys((self.files, step_folder(self.files, self.step.name))):
            if (place / "tests").is_dir():
                shutil.copytree(place / "tests", upper / "tests", symlinks=True, dirs_exist_ok=True)
        make_runnable(upper / "tests", "test.sh")
        make_logs(upper)
        for path in (upper / "tests", upper / "logs" / "verifier"):
            os.setxattr(path, "user.overlay.opaque", b"y")  # nothing that the agent has left there is seen

    def explain(self, verdict: Verdict, place: Path) -> Verdict:
        """Check a verdict by how the tests end without the agent's work, which no agent can influence.

        If there is no reward, whose fault is it? Tests that want a network often write 0 if they have none. A
        reward.json that the tests do not write comes from a program of the agent's that they have started.
        """
        rewards = verdict.rewards
        may_want = self.network == "none" and self.step.verifier.internet and not verdict.passed
        offline = may_want and NETWORK_ERRORS.search(verdict.output) is not None
        strange = rewards is not None and verdict.has_json and not self.names_json()
        if rewards is not None and not offline and not strange:
            return verdict
        untouched = self.attempt(place / "untouched", None, guarded=False)
        if strange and not untouched.has_json:
            return replace(verdict, rewards=None, cause="agent", why="reward.json does not come from the tests")
        if rewards is None and untouched.rewards is not None:
            return replace(verdict, cause="agent")
        if offline and (rewards is None or NETWORK_ERRORS.search(untouched.output)):
            why = f"{verdict.why or 'no reward is above 0'}; the tests want a network: --network host gives them one"
            return replace(verdict, rewards=None, cause="infrastructure", why=why)
        return verdict if rewards is not None else replace(verdict, cause="task")

    def names_json(self) -> bool:
        """Whether a file of the tests names reward.json."""
        folders = {self.files / "tests", step_folder(self.files, self.step.name) / "tests"}
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return any(b"reward.json" in path.read_bytes() for path in files)

    def solve(self, changes: Path) -> command.Ran:
        """Run the task's own solution in a box of the agent's. Its changes stay in `changes`."""
        phase = self.step.solution
        root = root_of(self.config, self.task, self.image, phase, changes)
        root.prepare()
        target = changes / "upper" / "solution"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(solution_folder(self.files, self.step.name), target, symlinks=True)
        make_runnable(target, "solve.sh")
        give_to_namespace(changes / "upper", target)
        return self.run(root, phase, "/solution/solve.sh", "solution")

    def run(self, root: image_root.Root, phase: Phase, script: str, name: str) -> command.Ran:
        """Run a script of the task in a box of its own."""
        return command.run(
            self.config,
            root,
            ["/bin/sh", "-c", f'exec "$(command -v bash || echo sh)" -c {script}'],  # as Harbor does
            seconds=phase.seconds,
            limits=limits_of(self.task),
            name=f"{self.trace_id}/{name}",
            network=self.network if phase.internet else "none",
        )


def make_runnable(folder: Path, script: str) -> None:
    """Let any user of the image read a folder and run a script in it. No link out of the folder is followed."""
    folders.let_read(folder)
    path = (folder / script).resolve()
    if path.is_file() and path.is_relative_to(folder.resolve()):
        path.chmod(0o755)


def make_logs(folder: Path, mode: int = 0o755) -> None:
    """Add Harbor's folders for logs, in which any user may write, and give all to root of the user namespaces."""
    for name in ("agent", "artifacts", "verifier"):
        (folder / "logs" / name).mkdir(parents=True)
    give_to_namespace(folder)
    folder.chmod(mode)
    for path in (folder / "logs").rglob("*"):
        path.chmod(0o777)


def give_to_namespace(*folders: Path) -> None:
    """Make root of the user namespaces own folders: the first alone (unless it is the only one), others recursively."""
    for path in (folders[0], *(path for folder in folders[1:] or folders for path in (folder, *folder.rglob("*")))):
        os.chown(path, userns.owner(0), userns.owner(0), follow_symlinks=False)


def read_rewards(upper: Path) -> dict[str, float]:
    """The rewards that the tests wrote. Raises Invalid. No link is followed: it could lead to any file of the host."""
    if (text := read_file(upper, "reward.json")) is not None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise Invalid("reward.json is not JSON") from None
        if not isinstance(value, dict) or not value:
            raise Invalid("reward.json is not an object with numbers")
        return {clean(name, 200): checked_number("reward.json", number) for name, number in value.items()}
    if (text := read_file(upper, "reward.txt")) is None:
        raise Invalid("the tests wrote neither reward.json nor reward.txt")
    try:
        return {"reward": checked_number("reward.txt", float(text))}
    except ValueError:
        raise Invalid("reward.txt is empty" if not text.strip() else "reward.txt has no number") from None


def checked_number(name: str, value: object) -> float:
    with contextlib.suppress(OverflowError):  # of an integer that is too large
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    raise Invalid(f"{name} has {value!r:.40}, which is not a finite number")


def read_file(upper: Path, name: str) -> str | None:
    """A file of /logs/verifier; None if it is missing. Raises Invalid."""
    folder = upper
    try:
        for part in ("logs", "verifier"):
            folder = folder / part
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise Invalid(f"/logs/verifier is no longer a folder: {part} was replaced")
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{name} can't be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid(f"{name} is not a regular file")
        data = file.read(MAX_REWARD_BYTES + 1)
    if len(data) > MAX_REWARD_BYTES:
        raise Invalid(f"{name} is too long")
    return data.decode(errors="replace")
