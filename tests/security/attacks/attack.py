"""An attack, and what the host checks after it."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import TYPE_CHECKING

from weavegen.sandbox.providers import Limits
from weavegen.sandbox.watch import Process, by_parent, descent, files, own_memory, page_tables, process_table

if TYPE_CHECKING:
    from tests.security.attacks.selfcheck import Scene

Check = Callable[["Scene"], None]
LIMITS = Limits(
    seconds=10.0, grace=1.0, memory=160 * 2**20, address_space=2**30, processes=40, cpu=3.0, cpu_share=0.1,
    file_size=16 * 2**20, files=256, disk=32 * 2**20, inodes=5_000,
)  # fmt: skip
"""Limits of the attacked boxes: small, so that bombs reach them soon."""
HASTE = replace(LIMITS, seconds=0.4, grace=0.3)
"""Limits for attacks that hang."""


def family(pid: int, processes: dict[int, Process]) -> list[int]:
    """A process and its descendants, as far as they are in `processes`."""
    return [member for member in descent(pid, by_parent(processes)) if member in processes]


class Escaped(Exception):
    """An attack was not contained. The text says how."""


def nothing(scene: "Scene") -> None:
    """No condition in addition to those that hold for every attack."""


@dataclass(frozen=True)
class Attack:
    """One attack."""

    name: str
    body: str
    """Body of a callback `attack(self)`."""
    check: Check = nothing
    """Raises Escaped if the attack was not contained."""
    linger: float = 0.0
    """Longest time in seconds to wait for the end of the box after the attack."""
    limits: Limits = LIMITS
    blocks: int = 0
    """Bytes of blocks that the worker sends to the box before the next operation."""
    harmless: bool = False
    """Whether the attack may run without isolation."""


def memory_held(scene: "Scene") -> None:
    """The box was ended because of its memory, or it uses no more than its limit."""
    environment = scene.environment
    if not environment.handle.alive():
        return
    processes = process_table()
    members = family(environment.handle.pid, processes)
    held = sum(own_memory(processes[pid]) + page_tables(processes[pid]) for pid in members)
    held += files(environment.handle)[0]
    if held > 1.2 * environment.limits.memory:
        raise Escaped(f"the box holds {held / 2**20:,.0f} MiB of memory")


def killed(*reasons: str) -> Check:
    """The environment was ended for one of these reasons, during the attack or directly after it."""

    def check(scene: "Scene") -> None:
        if not any(reason in f"{scene.failure} {scene.next_failure}" for reason in reasons):
            raise Escaped(f"it was to be ended ({' or '.join(reasons)}): {scene.said[:300]}")

    return check


def lives(scene: "Scene") -> None:
    """The trace continues: the attack and the block after it were executed to the end."""
    for one in (scene.executed, scene.next):
        if one is None or one.error is not None:
            raise Escaped(f"the environment does not go on: {scene.said[:300]}")


def error(*names: str) -> Check:
    """The trace continues, and the attack raised one of these exceptions."""

    def check(scene: "Scene") -> None:
        if scene.next is None or scene.next.error is not None:
            raise Escaped(f"the environment does not go on: {scene.said[:300]}")
        if scene.executed is None or scene.executed.error is None or scene.executed.error.type not in names:
            raise Escaped(f"it was to end in {' or '.join(names)}: {scene.said[:300]}")

    return check


def bounded(scene: "Scene") -> None:
    """The attack gave a false result for its own step, within the limits of an answer; or the environment was ended."""
    if scene.executed is None and "the environment process" not in scene.failure:
        raise Escaped(f"neither an answer nor an end: {scene.said[:300]}")


def unasked(scene: "Scene") -> None:
    """The model got no more questions than one operation may ask."""
    bounded(scene)
    if scene.asked > 4_096:
        raise Escaped(f"{scene.asked:,} prompts reached the model")


def nobody_listens(scene: "Scene") -> None:
    """The host can't reach the sockets on which the box listens."""
    lives(scene)
    for kind, address in (
        (socket.AF_INET, ("127.0.0.1", scene.told["port"])),
        (socket.AF_UNIX, f"\0{scene.arena.mark}-in"),
    ):
        with contextlib.suppress(OSError), socket.socket(kind) as one:
            one.settimeout(1)
            one.connect(address)
            raise Escaped(f"the host reaches the box's listener at {address!r}")


def hangs(name: str, body: str) -> "Attack":
    """An attack that blocks the worker until it ends the environment because there is no valid answer."""
    return Attack(name, body, killed("no answer within", "it sent", "it used more than"), limits=HASTE)


def poison(name: str, statement: str) -> "Attack":
    """An attack that sends the worker a message that no runner sends."""
    return Attack(name, dedent(statement).rstrip() + "\ntime.sleep(60)", killed("it sent an invalid message"))


def refused(name: str, *calls: str) -> "Attack":
    """An attack by system calls that must all fail. Each call is an expression with its arguments."""
    tries = ", ".join(f"got(lambda: {one})" for one in calls)
    return Attack(name, f"return [{tries}]", lives)
