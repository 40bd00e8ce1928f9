"""What only Python can say, trace by trace: how blocks render, parse and compile; their labels and rewards."""

import math
from collections import defaultdict
from functools import lru_cache
from typing import Any

import lark
import msgspec

from weavegen.agents.reward import reward
from weavegen.agents.write_block import probability
from weavegen.audit.check import Check
from weavegen.audit.reading import CHUNK, CONVERSING, Audit
from weavegen.errors import UsageError
from weavegen.kernel.replay import draw_label
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.settings import settings
from weavegen.kernel.steps import Append, Evaluated, Failure, YesNo
from weavegen.linting import lint
from weavegen.trace.blocks import COMMENTED, IMAGINED, MESSAGE, Block, BlockType, Label
from weavegen.trace.render import normalise_body, one_line, parse_trace, render_block

CHECKS = (
    Check("rendered", "a block's stored text is what its columns render to", "blocks"),
    Check("parsed", "a trace's text parses back into its blocks", "blocks"),
    Check("compiled", "every block whose `compiles` says so is legal Python, and so the whole trace is", "blocks"),
    Check("owners", "a block's subagent is that of its tick", "blocks"),
    Check(
        "candidate-texts",
        "a block's body is its candidate's text, cut to its legal structure; a message's is all of it",
        "blocks",
    ),
    Check("executed-sources", "what was executed is the block's body; a bootstrap's is its file", "blocks"),
    Check(
        "labels",
        "a label is drawn with the answer's probability and the trace's seed, a fork's shared ones elsewhere; no "
        "message has one",
        "blocks",
    ),
    Check(
        "tick-rewards",
        "a tick's reward follows from its blocks and evaluations, by the agent's own rule; agents that converse "
        "give none",
        "ticks",
    ),
    Check("block-rewards", "a block's reward and preference are its part of its tick's", "blocks"),
)

TRACES = """
select t.id, t.seed, t.fork_at, t.blocks, f.source, j.agent from traces t
join bootstraps f on f.id = t.bootstrap_id join jobs j on j.id = t.job_id
where {scope} and t.status <> 'queued' order by t.id
"""
TICKS = """
select k.number, k.subagent, k.reward, coalesce(o.settings, j.settings) as settings,
  k.finished_at is not null and exists (
  select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run and s.kind = 'execute'
    and s.status = 'done' and s.request ->> 'op' = 'evaluate') as evaluated
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
left join job_settings o on o.job_id = j.id and o.revision = k.revision
where k.trace_id = :id order by k.number
"""
EVALUATIONS = """
select e.tick, e.value, e.error from evaluations e join steps s on s.id = e.step_id
join ticks k on k.trace_id = e.trace_id and k.number = e.tick and k.run = s.run
where e.trace_id = :id order by e.tick, e.position
"""
OPTIONS = """
select s.tick, a.question, a.yes, a.no from scores a join steps s on s.id = a.step_id
join ticks k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
where a.trace_id = :id and a.stage = 'option'
"""
BLOCKS = """
select b.*, coalesce(p.rewritten, c.text) as chosen, p.candidate_id is not null as linted,
  s.request ->> 'op' as op, coalesce(s.request ->> 'source', '') as source, a.yes, a.no
from blocks b left join candidates c on c.id = b.candidate_id left join penalties p on p.candidate_id = c.id
left join steps s on s.id = b.executed_by
left join lateral (
  select a.yes, a.no from scores a where a.candidate_id = b.candidate_id and a.question = b.question
  order by a.stage = 'raw' desc limit 1
) a on true
where b.trace_id = :id order by b.index, b.id
"""

compiles = lru_cache(maxsize=64)(lint.compiles)
"""Remembered, as every trace begins with the same genesis and with one of a few bootstraps."""


def read(audit: Audit) -> None:
    """All traces, one after the other."""
    for trace in audit.rows(TRACES):
        read_trace(audit, trace)


def read_trace(audit: Audit, trace: Any) -> None:
    """One trace, block by block."""
    ticks = {row.number: row for row in audit.rows(TICKS, few=True, id=trace.id)}
    options = {
        (row.tick, row.question): YesNo(yes=row.yes, no=row.no)
        for row in audit.rows(OPTIONS, few=True, id=trace.id)
    }
    recorded: defaultdict[int, list[tuple[Append, Block]]] = defaultdict(list)
    given: dict[int, tuple[float | None, float | None]] = {}
    for row in audit.rows(BLOCKS, few=trace.blocks <= CHUNK, id=trace.id):
        block, place = block_of(row), f"block {row.index}"
        read_block(audit, trace, row, block, place, options)
        tick = ticks.get(row.tick)
        if tick is not None and row.subagent != one_line(tick.subagent):
            problem = f"it is of {row.subagent!r}, and its tick of {tick.subagent!r}"
            audit.found("owners", trace.id, place, problem)
        given[row.index] = (row.reward, row.preference)
        draft = Append(
            type=block.type,
            body="",
            score=row.score,
            ran=row.ran,
            compiles=row.compiles,
            exception=row.exception,
        )
        recorded[row.tick].append((draft, msgspec.structs.replace(block, body="")))
    read_rewards(audit, trace, ticks, recorded, given)


def read_block(
    audit: Audit, trace: Any, row: Any, block: Block, place: str, options: dict[tuple[int, str], YesNo]
) -> None:
    """What a block says by itself, and of what it was made."""
    if row.rendered != render_block(block):
        audit.found("rendered", trace.id, place, "its stored text is another than its columns render to")
    elif not parses_back(row.rendered, block):
        audit.found("parsed", trace.id, place, "its text does not parse back into it")
    if block.compiles and block.type not in COMMENTED and not compiles(block.body):
        audit.found("compiled", trace.id, place, f"it is no legal Python: {lint.syntax_error(block.body)}")
    kept = row.linted or (block.type in MESSAGE and row.chosen is not None)
    if kept and block.body != body_of(block.type, row.chosen):
        of = "what linting left of its candidate" if row.linted else "its candidate's text"
        audit.found("candidate-texts", trace.id, place, f"its body is not {of}")
    source = trace.source if block.type is BlockType.BOOTSTRAP else row.source if row.op == "run" else None
    if source is not None and block.body != normalise_body(block.type, source):
        audit.found("executed-sources", trace.id, place, "what was executed is another text than its body")
    shared = trace.fork_at is not None and block.index < trace.fork_at
    if block.type in MESSAGE:
        if row.question is not None or row.answer is not None or row.probability is not None:
            audit.found("labels", trace.id, place, "it is a message, and has a label")
    elif row.candidate_id is not None or (block.type is BlockType.OPTION and not shared):
        answer = YesNo(yes=row.yes, no=row.no) if row.yes is not None else options.get((row.tick, row.question))
        if answer is None or block.label is None:
            audit.found("labels", trace.id, place, "it has no label, or its question was never asked")
            return
        seed = derive_seed(trace.seed, "label", block.index)
        drawn = draw_label(block.label.question, probability(answer), seed)
        assert drawn is not None
        if drawn.answer != block.label.answer or not same(drawn.probability, block.label.probability):
            audit.found("labels", trace.id, place, f"its label is {block.label}, and the draw gives {drawn}")


def read_rewards(
    audit: Audit,
    trace: Any,
    ticks: dict[int, Any],
    recorded: dict[int, list[tuple[Append, Block]]],
    given: dict[int, tuple[float | None, float | None]],
) -> None:
    """What the agent would give for each tick, against what was given."""
    evaluations: defaultdict[int, list[Evaluated]] = defaultdict(list)
    for row in audit.rows(EVALUATIONS, few=True, id=trace.id):
        error = None if row.error is None else Failure(type="", message="", traceback="", stage="evaluation")
        evaluations[row.tick].append(Evaluated(title="", scope="task", value=row.value, error=error))
    for tick, blocks in recorded.items():
        if tick not in ticks:
            continue
        try:
            numbers = settings(ticks[tick].settings)
        except UsageError as error:
            problem = f"this version can't read the settings it was begun with: {error}"
            audit.found("tick-rewards", trace.id, f"tick {tick}", problem)
            continue
        rewarded = ticks[tick].evaluated and trace.agent not in CONVERSING
        due = reward(blocks, evaluations[tick], numbers) if rewarded else None
        whole = None if due is None else due.reward
        if not same(whole, ticks[tick].reward):
            problem = f"its reward is {ticks[tick].reward}, and its agent gives {whole} for its evaluations"
            audit.found("tick-rewards", trace.id, f"tick {tick}", problem)
        for _, block in blocks:
            share = None if due is None else due.shares.get(block.index)
            preference = None if due is None else due.preferences.get(block.index)
            if not (same(given[block.index][0], share) and same(given[block.index][1], preference)):
                problem = f"it was given {given[block.index]}, and its part is {(share, preference)}"
                audit.found("block-rewards", trace.id, f"block {block.index}", problem)


def block_of(row: Any) -> Block:
    """The block that a row's columns say."""
    label = None
    if row.question is not None and row.answer is not None and row.probability is not None:
        label = Label(row.question, row.answer, row.probability)
    return Block(
        type=BlockType(row.type),
        body=row.body,
        subagent=row.subagent,
        index=row.index,
        timestamp=row.timestamp,
        time_remaining=row.time_remaining,
        block_size=row.block_size,
        bm25_query=row.bm25_query,
        title=row.title,
        tick_start=row.tick_start,
        working_directory=row.working_directory,
        compiles=row.compiles,
        label=label,
        ran=row.ran,
        tags=tuple(row.tags),
    )


def body_of(type: BlockType, text: str) -> str:
    """The body that a block has by what was left of its candidate; of an imagined one without comment marks."""
    if type in IMAGINED:
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))
    return normalise_body(type, text)


def parses_back(rendered: str, block: Block) -> bool:
    """Whether a text is that of this very block. A trace is one text after the other, so it parses likewise."""
    try:
        return parse_trace(rendered) == [block]
    except (lark.LarkError, ValueError):
        return False


def same(one: float | None, other: float | None) -> bool:
    """Whether two numbers are equal, but for what another machine's arithmetic may make of them."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
