"""The self-check by attack: `run(attack)` executes a hostile block in a real environment and checks the host.

An arena holds the targets: a secret file and variable, listeners in place of database, broker and model pool, a
process to kill, another trace's environment. After each attack all targets must be unchanged, and so must mounts,
names, kernel settings, files and processes of the host.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import dedent, indent
from typing import Any

import msgspec

from tests.security.attacks import ATTACKS
from tests.security.attacks.arena import EMPTY, Arena, arena, read
from tests.security.attacks.attack import Attack, Escaped, family
from tests.security.attacks.tools import PRELUDE
from weavegen.config import Config
from weavegen.errors import EnvironmentFailure, ModelError, TransientError, UsageError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.client_session import BlockBrief
from weavegen.sandbox.environment import Environment, log_path, remove
from weavegen.sandbox.providers import provider
from weavegen.sandbox.watch import process_table

SLACK = 15.0
"""Seconds beyond its limits after which an attack counts as a hang. Generous, because a busy machine is slow."""
MOST_LOG = 2**20
"""The most bytes that an environment's log on the host may have."""
MOST_ANSWER = 8 * 2**20
CLOCK = (time.time(), time.monotonic())
"""The start time by the settable clock and by the monotonic clock."""


UNHARMED = """
def action_look(self):
    left = {"told": "told" in globals(), "processes": len([one for one in os.listdir("/proc") if one.isdigit()]),
            "files": sorted(os.listdir("/app") + os.listdir("/tmp"))}
    return "unharmed" if left == {"told": False, "processes": 2, "files": ["bootstraps", "tools"]} else left

self.add_action("Look", action_look)
"""
"""Says whether a trial has left something: globals, processes, files."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one attack."""

    attack: str
    contained: bool
    how: str
    seconds: float


@dataclass
class Scene:
    """One attack, as the host sees it."""

    arena: Arena
    environment: Environment
    told: dict[str, Any]
    executed: Executed | None = None
    """The result of the attacking block; None if the environment had to be ended."""
    failure: str = ""
    """The reason why the environment was ended."""
    next: Executed | None = None
    """The result of a harmless block after the attack."""
    next_failure: str = ""
    asked: int = 0
    """Prompts that reached the model."""
    seconds: float = 0.0

    @property
    def said(self) -> str:
        """All output of the box, as one text."""
        parts = [msgspec.json.encode(one).decode() for one in (self.executed, self.next) if one is not None]
        return "\n".join([*parts, self.failure, self.next_failure])

    @property
    def value(self) -> Any:
        return None if self.executed is None else self.executed.value


def block(attack: Attack, told: dict[str, Any]) -> str:
    """The hostile block: what the attacker knows, its tools, and the callback."""
    body = indent(dedent(attack.body).strip("\n"), "    ")
    return f"{PRELUDE}\ntold.update({told!r})\ndef attack(self):\n{body}\nself.add_action('Attack', attack)\n"


def run(attack: Attack, place: Arena, *, tried: bool = False) -> Finding:
    """Execute one attack in an environment of its own, started like a trace's, and then check the host.

    `tried`: the block is a candidate that is tried. Then the environment, too, must be as before, if it lives.
    """
    if tried:
        limits = replace(attack.limits, seconds=min(attack.limits.seconds, 1.5))
        attack = replace(attack, check=unharmed, limits=limits)
    if place.config.sandbox == "none" and not attack.harmless:
        raise UsageError(f"{attack.name!r} would do its harm here: WEAVEGEN_SANDBOX=none protects from nothing")
    place.traces += 1
    trace, began = place.traces, time.monotonic()
    try:
        before = place.before = place.before or place.state()
        environment = Environment.start(place.config, trace, limits=attack.limits)
        try:
            scene = fight(attack, Scene(place, environment, place.told()), tried)
            members = family(environment.handle.pid, process_table())
            judge(attack, scene)
        finally:
            environment.stop()
        left = [pid for pid in members if pid in process_table() and pid != os.getpid() and not ended(pid)]
        if left:
            raise Escaped(f"processes {left} outlive the trace")
        remove(place.config, trace)
        compare(before, place.state())
        place.neighbour.ping()
    except Escaped as error:
        return Finding(attack=attack.name, contained=False, how=str(error), seconds=time.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - any error that an attack causes in the worker is its success
        how = f"the worker's side raises {type(error).__name__}: {error}"
        return Finding(attack=attack.name, contained=False, how=how[:500], seconds=time.monotonic() - began)
    finally:
        remove(place.config, trace)
    return Finding(attack=attack.name, contained=True, how=words(scene), seconds=time.monotonic() - began)


def unharmed(scene: Scene) -> None:
    """The trial had no effect on the environment: the next block finds no trace of it, unless it was ended."""
    if scene.next is not None and scene.next.value != "unharmed":
        raise Escaped(f"the next block found the trial's effects: {scene.next}")


def fight(attack: Attack, scene: Scene, tried: bool = False) -> Scene:
    """Execute the hostile block, then a harmless one."""
    environment, held = scene.environment, open_files()
    began = time.monotonic()

    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        scene.asked += len(prompts)
        if any(len(prompt) > 2**20 for prompt in prompts):
            raise ModelError("the prompt is too long")
        return [(0.5, 0.5)] * len(prompts)

    try:
        environment.execute(1, Execute(op="bootstrap", source=EMPTY))
        hostile = Execute(op="run", type="action", source=block(attack, scene.told))  # type: ignore[arg-type]
        if tried:
            source = msgspec.json.encode([hostile.source]).decode()
            hostile = msgspec.structs.replace(hostile, op="try", source=source, candidates=((0, 0),))
        scene.executed = environment.execute(1_000, hostile, ask=ask)
        if scene.executed.trials:
            [scene.executed] = scene.executed.trials
    except (EnvironmentFailure, TransientError) as error:
        scene.failure = str(error)
    finally:
        scene.seconds = time.monotonic() - began
    deadline = time.monotonic() + attack.linger
    while time.monotonic() < deadline and environment.handle.alive():
        time.sleep(0.05)
    try:
        harmless = Execute(op="run", source="harmless = True")
        if tried:
            harmless = Execute(op="run", type="action", source=UNHARMED)  # type: ignore[arg-type]
        scene.next = environment.execute(1_001, harmless, lambda known: recorded(attack.blocks), ask)
    except EnvironmentFailure as error:
        scene.next_failure = str(error)
    deadline = time.monotonic() + 1.0
    while open_files() > held and time.monotonic() < deadline:
        time.sleep(0.05)  # another thread may hold one for a moment
    if open_files() > held:
        raise Escaped("the worker holds more open files than before")
    return scene


def recorded(size: int) -> list[BlockBrief]:
    """Blocks of a trace with `size` bytes in total, which the worker sends to the box."""
    return [BlockBrief(index, "action", "x" * 2**16) for index in range(size >> 16)]


def open_files() -> int:
    """Sockets and devices that this process has open. Files are not counted, because the watch opens some."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{fd}").startswith(("socket:", "pipe:", "/dev/"))
    return found


def judge(attack: Attack, scene: Scene) -> None:
    """Check the conditions of every attack, then those of this attack. Raises Escaped."""
    place, limits = scene.arena, attack.limits
    if place.secret in scene.said:
        raise Escaped("a secret came out")
    if scene.executed is not None and "GOT" in f"{scene.value} {scene.executed.output}":
        raise Escaped(f"it got what it wanted: {scene.value or scene.failure}")
    if calls := place.calls():
        raise Escaped(f"it reached {', '.join(calls)}")
    if scene.seconds > limits.seconds + limits.grace + SLACK:
        raise Escaped(f"the worker was held up for {scene.seconds:.0f} seconds")
    if len(scene.said) > MOST_ANSWER or "\\u0000" in scene.said.replace("\\\\", ""):
        raise Escaped("the worker was given what Postgres can't hold")
    log = log_path(place.config, scene.environment.trace_id)
    if log.exists() and log.stat().st_size > MOST_LOG:
        raise Escaped(f"a log of {log.stat().st_size:,} bytes on the host")
    for namespace in ("net", "pid", "ipc", "uts", "mnt"):
        with contextlib.suppress(OSError):  # it has ended
            inside = os.readlink(f"/proc/{scene.environment.handle.pid}/ns/{namespace}")
            if inside == os.readlink(f"/proc/self/ns/{namespace}"):
                raise Escaped(f"the box is in the host's {namespace} namespace")
    if abs((time.time() - time.monotonic()) - (CLOCK[0] - CLOCK[1])) > 5:
        raise Escaped("the clock was set")
    attack.check(scene)


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise Escaped if the host has changed."""
    for name, was in before.items():
        if after[name] != was:
            difference = f"{str(was)[:150]} became {str(after[name])[:150]}"
            if isinstance(was, list):
                difference = str(set(map(str, was)) ^ set(map(str, after[name])))[:300]
            raise Escaped(f"the host's {name} changed: {difference}")


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return True
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] in (["Z"], ["X"], [])


def words(scene: Scene) -> str:
    """How an attack was contained, in a few words."""
    if scene.failure:
        return scene.failure[:160]
    if scene.next_failure:
        return f"then {scene.next_failure[:160]}"
    assert scene.executed is not None
    if scene.executed.error is not None:
        return f"{scene.executed.error.type}: {scene.executed.error.message}"[:160]
    value = scene.value
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return ", ".join(dict.fromkeys(value))[:160]
    return f"it had its way inside, and got no further: {str(value)[:80]}"


def check(config: Config, only: str = "") -> Iterator[Finding]:
    """Run the attacks whose names match `only`; without isolation, only the harmless ones.

    Raises UsageError if no box can be started.
    """
    try:
        chosen = [attack for attack in ATTACKS if re.search(only, attack.name)]
    except re.error as error:
        raise UsageError(f"--only {only!r} is no regular expression: {error}") from None
    if not chosen:
        raise UsageError(f"no attack has a name like {only!r}: leave --only out to see all")
    if config.sandbox == "none":
        chosen = [attack for attack in chosen if attack.harmless]
    provider(config.sandbox).require()
    with arena(config) as place:
        for attack in chosen:
            yield run(attack, place)
