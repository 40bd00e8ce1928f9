"""Checks that only Python can express: how blocks render, parse and compile, their labels and their rewards."""

import math
from collections import defaultdict
from functools import lru_cache
from typing import Any

import lark
import msgspec

from weavegen import sql
from weavegen.agents import harbor
from weavegen.agents.reward import reward
from weavegen.audit.check import CHUNK_ROWS, CONVERSING, Check, Scan
from weavegen.errors import UsageError
from weavegen.kernel.replay import draw_label
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.selection import probability
from weavegen.kernel.settings import settings
from weavegen.kernel.steps import Append, Evaluated, Failure, Reward, YesNo
from weavegen.linting import lint
from weavegen.trace.blocks import COMMENTED, IMAGINED, MESSAGE, Block, BlockType, block_from_columns
from weavegen.trace.render import normalise_body, one_line, parse_trace, render_block

CHECKS = (
    Check("rendered", "a block's stored text equals the rendering of its columns", "blocks"),
    Check("parsed", "a trace's text parses back into its blocks", "blocks"),
    Check("compiled", "every block marked `compiles` is valid Python, so the whole trace is", "blocks"),
    Check("owners", "a block's subagent is that of its tick", "blocks"),
    Check(
        "candidate-texts",
        "a block's body is its candidate's text, cut to its legal structure; a message's body is the whole text",
        "blocks",
    ),
    Check("executed-sources", "the executed text is the block's body, for a bootstrap its file", "blocks"),
    Check(
        "labels",
        "a label is drawn with the answer's probability and the trace's seed, except in a fork's shared blocks; "
        "messages have no label",
        "blocks",
    ),
    Check(
        "tick-rewards",
        "a tick's reward follows from its blocks and evaluations, or is its verifier's; other conversations have none",
        "ticks",
    ),
    Check("block-rewards", "a block's reward and preference are its share of its tick's", "blocks"),
)

syntax_error = lru_cache(maxsize=64)(lint.syntax_error)
"""Cached because every trace begins with the same genesis and one of a few bootstraps."""


class TraceCheck:
    """The checks of one trace."""

    def __init__(self, scan: Scan, trace: Any) -> None:
        self.scan, self.trace = scan, trace
        self.ticks = {row.number: row for row in self.rows("ticks")}
        self.options = {(row.tick, row.question): YesNo(yes=row.yes, no=row.no) for row in self.rows("options")}
        """Answers about options, by tick and question."""
        self.recorded: defaultdict[int, list[tuple[Append, Block]]] = defaultdict(list)
        """The blocks of each tick without their bodies."""
        self.shares: dict[int, tuple[float | None, float | None]] = {}
        """Recorded reward and preference, by block index."""

    def rows(self, name: str, *, at_once: bool = True) -> Any:
        return self.scan.rows(sql.text(f"audit/{name}"), at_once=at_once, id=self.trace.id)

    def add(self, check: str, place: str, problem: str) -> None:
        self.scan.add(check, self.trace.id, place, problem)

    def run(self) -> None:
        """Check the trace block by block, then its rewards."""
        for row in self.rows("blocks", at_once=self.trace.blocks <= CHUNK_ROWS):
            block, place = block_from_columns(row._asdict()), f"block {row.index}"
            self.check_text(row, block, place)
            self.check_sources(row, block, place)
            self.check_label(row, block, place)
            self.collect(row, block)
        self.check_rewards()

    def check_text(self, row: Any, block: Block, place: str) -> None:
        """Check a block's stored text, and its owner."""
        if row.rendered != render_block(block):
            self.add("rendered", place, "its stored text differs from the rendering of its columns")
        elif not parses_back(row.rendered, block):
            self.add("parsed", place, "its text does not parse back into it")
        if block.compiles and block.type not in COMMENTED and (error := syntax_error(block.body)):
            self.add("compiled", place, f"it is not valid Python: {error}")
        tick = self.ticks.get(row.tick)
        if tick is not None and row.subagent != one_line(tick.subagent):
            self.add("owners", place, f"its subagent is {row.subagent!r}, but that of its tick is {tick.subagent!r}")

    def check_sources(self, row: Any, block: Block, place: str) -> None:
        """Compare a block's body with its candidate and with what was executed."""
        has_candidate = row.linted or (block.type in MESSAGE and row.chosen is not None)
        if has_candidate and block.body != body_of(block.type, row.chosen):
            text = "the legal structure of its candidate" if row.linted else "its candidate's text"
            self.add("candidate-texts", place, f"its body is not {text}")
        is_bootstrap = block.type is BlockType.BOOTSTRAP
        source = self.trace.source if is_bootstrap else row.source if row.op == "run" else None
        if source is not None and block.body != normalise_body(block.type, source):
            self.add("executed-sources", place, "the executed text differs from its body")

    def check_label(self, row: Any, block: Block, place: str) -> None:
        """Draw a block's label again and compare."""
        if block.type in MESSAGE:
            if row.question is not None or row.answer is not None or row.probability is not None:
                self.add("labels", place, "it is a message, but has a label")
            return
        shared = self.trace.fork_at is not None and block.index < self.trace.fork_at
        if row.candidate_id is None and (block.type is not BlockType.OPTION or shared):
            return
        undecided = (tick == row.tick and not a.yes + a.no for (tick, _), a in self.options.items())
        if block.label is None and (row.undecided or (row.candidate_id is None and any(undecided))):
            return
        given = None if row.yes is None else YesNo(yes=row.yes, no=row.no)
        answer = given or self.options.get((row.tick, row.question))
        if answer is None or block.label is None:
            self.add("labels", place, "it has no label, or its question was never asked")
            return
        seed = derive_seed(self.trace.seed, "label", block.index)
        label, drawn = block.label, draw_label(block.label.question, probability(answer), seed)
        if drawn is None or drawn.answer != label.answer or not same(drawn.probability, label.probability):
            self.add("labels", place, f"its label is {label}, but the draw gives {drawn}")

    def collect(self, row: Any, block: Block) -> None:
        """Keep the parts of a block that its tick's reward depends on."""
        self.shares[row.index] = (row.reward, row.preference)
        draft = Append(
            type=block.type, body="", score=row.score, ran=row.ran, compiles=row.compiles, exception=row.exception
        )
        self.recorded[row.tick].append((draft, msgspec.structs.replace(block, body="")))

    def check_rewards(self) -> None:
        """Compute the rewards of all ticks again and compare."""
        evaluations: defaultdict[int, list[Evaluated]] = defaultdict(list)
        for row in self.rows("evaluations"):
            error = None if row.error is None else Failure(type="", message="", traceback="", stage="evaluation")
            more = {"protected": row.protected, "cause": row.cause}
            evaluations[row.tick].append(Evaluated(title=row.title, scope="task", value=row.value, error=error, **more))
        for number, blocks in self.recorded.items():
            if number in self.ticks:
                self.check_reward(self.ticks[number], blocks, evaluations[number])

    def check_reward(self, tick: Any, blocks: list[tuple[Append, Block]], evaluations: list[Evaluated]) -> None:
        """Compute a tick's reward and its blocks' shares again and compare."""
        place = f"tick {tick.number}"
        try:
            tick_settings = settings(tick.settings)
        except UsageError as error:
            self.add("tick-rewards", place, f"this version cannot read the tick's settings: {error}")
            return
        rewarded = tick.evaluated and self.trace.agent not in CONVERSING
        none = Reward(reward=None, shares={}, preferences={})
        computed = reward(blocks, evaluations, tick_settings) if rewarded else none
        if tick.verified:
            computed = harbor.reward_of(evaluations)
        if not same(computed.reward, tick.reward):
            problem = f"its reward is {tick.reward}, but its evaluations give {computed.reward}"
            self.add("tick-rewards", place, problem)
        if (tick.protected, tick.not_evaluated) != (computed.protected, computed.not_evaluated):
            self.add("tick-rewards", place, "its protected evaluations are not those that its reward counts")
        for _, block in blocks:
            share, preference = computed.shares.get(block.index), computed.preferences.get(block.index)
            recorded = self.shares[block.index]
            if not (same(recorded[0], share) and same(recorded[1], preference)):
                problem = f"its reward and preference are {recorded}, but its share is {(share, preference)}"
                self.add("block-rewards", f"block {block.index}", problem)


def body_of(type: BlockType, text: str) -> str:
    """The body that a block has by its candidate's text; the text of imagined blocks is commented out."""
    if type in IMAGINED:
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))
    return normalise_body(type, text)


def parses_back(rendered: str, block: Block) -> bool:
    """Whether a text parses into this block. A trace is a sequence of such texts, so it parses too."""
    try:
        return parse_trace(rendered) == [block]
    except (lark.LarkError, ValueError):
        return False


def same(a: float | None, b: float | None) -> bool:
    """Whether two numbers are equal up to differences in the arithmetic of machines. None equals None only."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
