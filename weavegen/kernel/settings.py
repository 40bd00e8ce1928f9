"""The settings of a job. Each can be set when the job is enqueued, and is stored with it."""

import difflib
import logging
import math
import re
from typing import Any, Literal

import msgspec

from weavegen.errors import UsageError
from weavegen.trace.blocks import CALLBACK, IMAGINED, PROSE, BlockType

log = logging.getLogger(__name__)


class BlockSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a block is written. These can also be set for blocks of one type."""

    # Sampling.
    max_tokens: int = 768
    """Maximum tokens of a block. 0, the default of a message: as many as the context has room for."""
    temperature: float = 1.0  # Divisor of the logits in sampling.
    top_k: int = 50  # Sampling from this many likeliest tokens; -1 or 0: from all.
    repetition_penalty: float = 1.02  # As in vLLM: divisor of the logits of tokens of the prompt and the text; 1: none.

    # Selection.
    search: Literal["cascade", "tree", "execute", "tree-execute"] = "cascade"
    """Growing rounds of whole candidates; a tree of unfinished ones; either with its best candidates tried, if the
    block is executed (docs/weave.md)."""
    trials: int = 4
    """With `search` execute or tree-execute: how many candidates of a round, or tree leaves, are tried, best first."""
    all_questions: bool = False
    """Ask every question of the rubric, and select by their mean. False: ask the first question of the type."""
    wordings: int = 6  # Number of wordings of a question, one of which is drawn for each block; 1: only its own words.
    linting: bool = True
    """False: no penalties and no rewriting, for comparisons. Whether a block compiles is still checked."""

    # The cascade.
    rounds: tuple[int, ...] = (4, 16, 64)
    """Candidates per round. With `search` execute the default is (1, 4, 16)."""
    accept: float = 1.0
    """A round ends the cascade if its best candidate compiles and scores at least this (log odds)."""

    # The tree search. OF_TYPE has the defaults of single types.
    tree_first: int = 32
    """Candidates of the round before the tree search. 0: no such round. An orientation never has one, because it
    always retrieves first."""
    tree_accept: float = 2.5
    """No tree search follows if that round's best candidate compiles and scores at least this (log odds)."""
    tree_nodes: int = 72
    """Budget of the search in nodes."""
    tree_round: int = 24
    """Nodes sampled between two prunings."""
    tree_children: int = 16
    """Nodes sampled at a time as children of one node."""
    tree_tokens: int = 256
    """Tokens of a node. `max_tokens` still limits the whole block."""
    tree_beam: int = 1
    """Nodes that pruning keeps."""
    tree_lookahead: int = 3
    """Depth in nodes to which the tree may grow below the kept ones in one round."""
    tree_temperature: float = 0.2
    """Divisor of scores in the search."""

    # Retrieval.
    query_samples: int = 8
    """Samples of the query; the first that parses is used."""
    query_tokens: int = 96  # Tokens of a sample of the query.
    same_type_until: int = 50
    """Until a trace has this many blocks, it retrieves only blocks of the type that it writes."""
    top_k_hits: int = 25
    """Maximum number of hits."""
    least_score: float = 2.0  # Minimum BM25 score of a hit.
    hits_in_prompt: int = 3
    """How many of these hits, the best ones, are in a prompt."""
    show_draft: bool = False
    """Show the model the best candidate of the round before like a retrieved block."""
    memory: float | None = None
    """Minimum score (log odds) of hits from other traces. None: search this trace only. With other traces, equal seeds
    no longer give equal traces, because it depends on chance what other traces have written by then."""
    memory_scope: Literal["job", "all"] = "job"
    """Which other traces: those of the job, or of all jobs."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.tree_temperature <= 0:
            raise ValueError(f"tree_temperature is {self.tree_temperature}: give more than 0")
        if not self.rounds or min(self.rounds) < 1:
            raise ValueError("rounds must name at least one round of at least one candidate")


LEAST = {
    **dict.fromkeys(("tree_nodes", "tree_round", "tree_children", "tree_tokens", "tree_beam", "tree_lookahead"), 1),
    **dict.fromkeys(("trials", "query_samples", "query_tokens", "top_k_hits", "attempts", "window_kept"), 1),
    "wordings": 1,
    **dict.fromkeys(("max_tokens", "temperature", "repetition_penalty", "tree_first", "same_type_until"), 0),
    **dict.fromkeys(("hits_in_prompt", "steps", "ticks", "blocks", "until_bytes", "sampled_tokens", "context"), 0),
    **dict.fromkeys(("time_budget", "callback_seconds", "doom_loop", "delegated_traces"), 0),
    "top_k": -1,
}
"""Minimum values. Settings that are not here may be negative."""
MOST = {"until_bytes": 10**15, "callback_seconds": 10**6, "time_budget": 10**7}
"""Maximum values, where they are not COUNT."""
STEEPEST = 1000.0
"""Maximum slope and intercept of a correction."""
COUNT = 10**9
"""Maximum value of most settings: more is a typing error, and columns and timers would overflow."""


def check_numbers(settings: msgspec.Struct) -> None:
    """Raise ValueError for a value that is not a number, too small or too large."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        numbers = value if isinstance(value, tuple) else [value]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            if name in LEAST and number < LEAST[name]:
                raise ValueError(f"{name} is {number}: give {LEAST[name]} or more")
            if not abs(number) <= (most := MOST.get(name, COUNT)):  # so that NaN fails, too
                raise ValueError(f"{name} is {number}: give a number up to {most:,}")


OF_TYPE: dict[str, dict[str, Any]] = {
    BlockType.ORIENTATION: {"tree_nodes": 288, "tree_round": 96, "tree_children": 32},
    BlockType.ASSISTANT: {"max_tokens": 0, "temperature": 0.7, "top_k": -1, "repetition_penalty": 1.0},
}
"""Defaults of single block types. A value that was set for all types overrides them."""

OF_SEARCH: dict[str, dict[str, Any]] = {"execute": {"rounds": (1, 4, 16)}}
"""Defaults of single searches. A trial says more than further candidates do: one that runs is enough."""

DEFAULTS = msgspec.structs.asdict(BlockSettings())
USUAL = frozenset(name for usual in (*OF_TYPE.values(), *OF_SEARCH.values()) for name in usual)

WRITTEN = sorted(PROSE | CALLBACK | IMAGINED | {BlockType.OBSERVATION_INFERENCE, BlockType.ASSISTANT})
"""Block types that the model writes, some of them only in planning."""


class Settings(BlockSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How traces are generated. The defaults are those of weave-agent (docs/weave.md)."""

    # Budgets of one trace; the first that is spent ends it.
    ticks: int | None = None
    """Ticks after the bootstrap's. None: no limit."""
    blocks: int | None = None  # Blocks of the trace, those of the bootstrap included.
    until_bytes: int | None = None
    """Bytes of rendered trace."""
    sampled_tokens: int | None = None  # Tokens of all candidates and queries.
    time_budget: float = 360.0
    """Minutes."""

    steps: int | None = None
    """Messages of the model in agents that converse. None: the agent's own limit (react: 50)."""

    # The tick.
    attempts: int = 3
    """Attempts at the action, and at the evaluation."""
    backtrack_below: float = 0.1
    """A chosen action with a lower score is taken back, once a tick, unless it ran when it was tried."""
    doom_loop: int = 3
    """Consecutive ticks with equal actions and equal outcomes after which the agent is warned. 0: never."""
    callback_seconds: float = 30.0
    """Wall time limit of one operation in the environment, in seconds; the bootstrap file has four times as long. In
    Harbor tasks: what the agent has left."""

    network: Literal["none", "host"] = "none"
    """What the environment can reach: only its own servers, or everything that the host can reach."""

    # The context.
    window: int = 60
    """Maximum number of blocks in the context after the pinned ones."""
    window_kept: int = 40
    """Blocks that stay when the window is full. It drops old blocks in chunks, so that the server's prefix cache
    serves the prompts in between."""

    context: int | None = None
    """Tokens of a prompt with its continuation. None: the model's length, as the server reports it."""

    # What is kept.
    tokens: Literal["all", "chosen", "none"] = "chosen"
    """Whose token ids and logprobs are kept: those of all candidates, of those that became blocks, or none. The
    token ids of prompts are kept unless it is none."""

    # Traces of other agents that do tasks for this one.
    delegates: dict[str, dict[str, Any]] = {}
    """By agent: settings of the traces in which it does tasks, and `model`, where it differs. Read when the job first
    asks that agent; from then on, `retune` the agent's own job."""
    delegated_traces: int = 64
    """Maximum number of traces that a trace, together with those that work for it, requests from other agents."""

    # The evaluator.
    corrections: dict[str, tuple[float, float]] = {}
    """By question: slope and intercept. Candidates are compared by slope times log odds, plus intercept; recorded
    scores stay as the model gave them. `--correction NAME` copies them from `weavegen calibrate --fit NAME`."""

    # Rewards.
    action_cost: float = 0.1  # Subtracted from a tick's reward for each of its actions.
    reward_decay: float = 0.8  # A block gets its successor's share of the reward times this.

    # Single block types.
    types: dict[str, dict[str, Any]] = {}
    """By block type: settings of a block, for blocks of that type alone; `--set TYPE.KEY=VALUE` writes into it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window_kept >= self.window:
            raise ValueError(f"window_kept ({self.window_kept}) must be below window ({self.window})")
        for question, line in self.corrections.items():
            if not all(abs(number) <= STEEPEST for number in line):
                raise ValueError(f"corrections: {question!r:.60} has {line}: give numbers up to {STEEPEST:g}")
        for type, own in self.types.items():
            if type not in WRITTEN:
                raise ValueError(f"the model writes no blocks of type {type}: choose from {', '.join(WRITTEN)}")
            for name in own:
                if name not in BlockSettings.__struct_fields__:
                    known = ", ".join(BlockSettings.__struct_fields__)
                    raise ValueError(f"{type}.{name} can't be set for one block type alone: choose from {known}")
            try:
                its = self.of(type)
            except msgspec.ValidationError as error:
                raise ValueError(f"{type}: {error}") from None
            if its.max_tokens < 1 and type != BlockType.ASSISTANT:
                raise ValueError(f"{type}.max_tokens is {its.max_tokens}: give 1 or more")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: give 1 or more; assistant.max_tokens can be 0")
        for agent, its_settings in self.delegates.items():
            try:
                msgspec.convert({key: value for key, value in its_settings.items() if key != "model"}, Settings)
            except msgspec.ValidationError as error:
                raise ValueError(f"delegates: {agent}: {error}") from None

    def of(self, type: str) -> BlockSettings:
        """How blocks of a type are written."""
        values = {name: getattr(self, name) for name in BlockSettings.__struct_fields__}
        own = self.types.get(type, {})
        usual = OF_SEARCH.get(own.get("search", self.search), {}) | OF_TYPE.get(type, {})
        usual = {name: value for name, value in usual.items() if values[name] == DEFAULTS[name]}
        return msgspec.convert(values | usual | own, BlockSettings)


RENAMED = {"young": "same_type_until", "considered": "top_k_hits", "recalled": "hits_in_prompt"}
"""Names of settings before version 0.2. They are still read, with a warning where a user typed them."""


def settings(values: dict[str, Any]) -> Settings:
    """Settings with `values` in place of defaults. Raises UsageError naming what is wrong."""
    check_json(values, "settings")
    try:
        found = msgspec.convert(named := renamed(values), Settings)
        # `of` takes a value that equals the default for one that nobody has set: such a one is set for each type.
        if given := {name: DEFAULTS[name] for name in USUAL & named.keys() if getattr(found, name) == DEFAULTS[name]}:
            types = {type: given | found.types.get(type, {}) for type in WRITTEN}
            found = msgspec.structs.replace(found, types=types)
        return found
    except (msgspec.ValidationError, ValueError) as error:
        unknown = re.search(r"unknown field `(\w+)`", str(error))
        near = difflib.get_close_matches(unknown[1], Settings.__struct_fields__, 1) if unknown else []
        hint = f"; did you mean {near[0]}?" if near else "; docs/settings.md lists all" if unknown else ""
        raise UsageError(f"settings: {error}{hint}") from None


def renamed(values: dict[str, Any], *, warn: bool = False) -> dict[str, Any]:
    """The values under today's names, those of single block types and of delegates included.

    `warn`: a user typed them, so an old name is worth a warning.
    """
    found = {}
    for name, value in values.items():
        current = RENAMED.get(name, name)
        if current != name and warn:
            log.warning("setting %s is now called %s; the old name will be refused in version 0.3", name, current)
        if name in ("types", "delegates") and isinstance(value, dict):
            value = {key: renamed(own, warn=warn) if isinstance(own, dict) else own for key, own in value.items()}
        found[current] = value
    return found


NESTED = 50
"""Maximum depth of a value. Python's JSON encoder, which writes it for the environment, fails near 300."""


def check_json(value: Any, what: str, depth: int = NESTED, parts: float = math.inf, chars: float = math.inf) -> None:
    """Raise UsageError unless the database keeps `value` as JSON and gives it back the same.

    It has no NaN and no infinity; text is Unicode without NUL and lone surrogates; whole numbers have 64 bits.
    `parts`: most values in it; `chars`: most characters of a text or key in it.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    for part, level in waiting:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
        if level > depth or len(waiting) + len(inner) > parts:
            raise UsageError(f"{what}: nested more than {depth} deep, or too many parts: give something flatter")
        waiting += [(one, level + 1) for one in inner]
        for text in part if isinstance(part, dict) else [part] if isinstance(part, str) else ():
            if not isinstance(text, str):
                raise UsageError(f"{what}: the key {text!r:.50} is not text: use a string")
            if _UNSTORABLE.search(text) or len(text) > chars:
                raise UsageError(f"{what}: {text!a:.50} is too long, or can't be stored: leave it out")
        if isinstance(part, int) and not -(2**63) <= part < 2**63:
            raise UsageError(f"{what}: a whole number has more than 64 bits: give it as a string")
        if isinstance(part, float) and not math.isfinite(part):
            raise UsageError(f"{what}: {part} is not a JSON number: give a finite number")
        if not isinstance(part, dict | list | tuple | str | int | float | None):
            raise UsageError(f"{what}: {type(part).__name__} is not a JSON type: give text, numbers, lists, objects")


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
