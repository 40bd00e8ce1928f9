"""A Harbor task as weavegen runs it: what its task.toml asks for, checked, with all defaults filled in.

weavegen/harbor/folder.py reads it from a folder. The format's facts are in docs/harbor.md.
"""

from typing import Any, Literal

import msgspec

from weavegen.kernel.mcp import McpServer


class Phase(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the agent, the verifier or the reference solution runs."""

    seconds: float
    """Time limit."""
    user: str | None = None
    """A name or a number in the image; None: the user that the image names."""
    environ: dict[str, str] = {}
    """`${NAME}` and `${NAME:-default}` in a value stand for a variable of the execute worker."""
    internet: bool = True
    """Whether it may reach the network, if the job's setting `network` is host."""


class HarborStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One instruction with its verification. A task has one, or those of its [[steps]]."""

    instruction: str
    agent: Phase
    verifier: Phase
    solution: Phase
    name: str = ""
    """Name of its folder below steps/. Empty: the task has no steps, and its files are at the top."""
    min_reward: dict[str, float] = {}
    """The minimum rewards with which the next step begins."""


class HarborTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checked task."""

    name: str
    steps: tuple[HarborStep, ...]
    reward_of_steps: Literal["mean", "final"] = "mean"
    context: str = ""
    """Hash of the files in environment/."""
    image: str | None = None
    """Name of an image that exists already; None: environment/Dockerfile describes it."""
    build_seconds: float = 600.0
    workdir: str | None = None
    """Working folder; None: the image's."""
    environ: dict[str, str] = {}
    """As in Phase, for all that runs in the image."""
    mcp_servers: dict[str, McpServer] = {}
    """Those that are started in the image, by name."""
    cpus: float = 1.0
    memory_mb: int = 2048
    storage_mb: int = 10240
    metadata: dict[str, Any] = {}
    """The table [metadata], and the keys name, description and keywords of [task]."""
