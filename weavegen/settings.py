"""The numbers of a job: every one of them can be set when it is enqueued, and is stored with it."""

from typing import Any

import msgspec

from weavegen.errors import UsageError


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How traces are generated. Defaults and their meaning are weave-agent's (WEAVE sections 3 and 4)."""

    # Budgets of one trace; the first one spent ends it.
    ticks: int | None = None
    """Ticks after the bootstrap's own; None: no limit."""
    blocks: int | None = None
    until_bytes: int | None = None
    """Bytes of rendered trace."""
    sampled_tokens: int | None = None
    time_budget: float = 360.0
    """Minutes."""

    # The tick.
    attempts: int = 3
    """Of the action, and of the evaluation."""
    backtrack_below: float = 0.1
    """A chosen action with a lower score is not executed but taken back, once a tick."""
    doom_loop: int = 3
    """Ticks in a row with equal actions and equal outcomes after which the agent is told so; 0: never."""
    callback_seconds: float = 30.0
    """Wall time that one operation in the environment may take."""

    # The cascade.
    rounds: tuple[int, ...] = (4, 16, 64)
    """Candidates per round."""
    accept: float = 1.0
    """A round's best candidate ends the cascade if it compiles and scores at least this (log odds)."""
    all_questions: bool = False
    """Ask every question of the rubric, and select by their mean; else the first of each block type."""
    max_tokens: int = 768
    temperature: float = 1.0
    top_k: int = 50
    repetition_penalty: float = 1.02

    # The context.
    window: int = 60
    """Blocks after the pinned ones that the context holds at most."""
    window_kept: int = 40
    """Blocks left when it is full: the window drops old blocks in chunks, so that the server's prefix cache
    serves the blocks in between."""

    # Retrieval (WEAVE section 7).
    query_samples: int = 8
    """Queries that the model is sampled for; the first that parses is used."""
    query_tokens: int = 96
    young: int = 50
    """Blocks below which a trace retrieves only blocks of the type that it writes."""
    considered: int = 25
    """Hits at most."""
    least_score: float = 2.0
    recalled: int = 3
    """Hits in a prompt, at most."""

    # The template of the model.
    prompt_open: str = "<s> [INST] "
    prompt_close: str = " [/INST]"

    # Rewards.
    action_cost: float = 0.1
    reward_decay: float = 0.8

    def __post_init__(self) -> None:
        for name in ("ticks", "blocks", "until_bytes", "sampled_tokens"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise ValueError(f"{name} is {value}: give 0 or more")
        for name in ("attempts", "max_tokens", "window_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give 1 or more")
        if not self.rounds or min(self.rounds) < 1:
            raise ValueError("rounds must name at least one round of at least one candidate")
        if self.window_kept >= self.window:
            raise ValueError(f"window_kept ({self.window_kept}) must be below window ({self.window})")


def settings(values: dict[str, Any]) -> Settings:
    """Settings with `values` in place of defaults. Raises UsageError naming what is wrong."""
    try:
        return msgspec.convert(values, Settings)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"settings: {error}") from None
