"""Candidates in Postgres: what was sampled, what linting found in it, how it was scored."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.kernel import prompts
from weavegen.kernel.selection import log_odds
from weavegen.kernel.steps import Candidate, Sample, Score, Verdict, YesNo
from weavegen.store import models as m

BLOCKS, CANDIDATES, PENALTIES, SCORES, STEPS = map(m.table, (m.Block, m.Candidate, m.Penalties, m.Score, m.Step))

QUERY = "bm25-query"
"""Type of a candidate that is no block but a query for its header."""
NEXT = "next-type"
"""Type of a candidate that names the type of a block to come."""


def save(
    conn: sa.Connection,
    trace_id: int,
    step_id: int,
    step: Sample,
    index: int,
    texts: Sequence[Candidate],
    tokens: Sequence[tuple[list[int] | None, list[float] | None]],
    parent_id: int | None = None,
) -> None:
    """Keep every candidate of a round; in a tree, `parent_id` is the node that they all go on from.

    `tokens`: ids and logprobs of what was sampled for each.
    """
    rows = [
        {
            "trace_id": trace_id,
            "step_id": step_id,
            "position": position,
            "block_index": index,
            "type": QUERY if step.prompt.query else NEXT if step.prompt.next else step.prompt.type,
            "round": step.round,
            "depth": step.depth or None,
            "parent_id": parent_id,
            "token_ids": ids,
            "logprobs": logprobs,
            "text": candidate.text,
            "finish_reason": candidate.finish_reason,
            "tokens": candidate.tokens,
        }
        for position, (candidate, (ids, logprobs)) in enumerate(zip(texts, tokens, strict=True))
    ]
    conn.execute(sa.insert(CANDIDATES), rows)


def load(
    conn: sa.Connection, trace_id: int, tick: int, run: int, ordinal: int, *, tokens: bool = False
) -> Sequence[Any]:
    """Rows (id, text, tokens, finish_reason, depth) of the candidates of one Sample step, by position.

    With `tokens` also token_ids: those of the sampled tokens, or None.
    """
    names = ("id", "text", "tokens", "finish_reason", "depth", *(("token_ids",) if tokens else ()))
    query = (
        sa.select(*(CANDIDATES.c[name] for name in names))
        .join(STEPS, STEPS.c.id == CANDIDATES.c.step_id)
        .where(STEPS.c.trace_id == trace_id, STEPS.c.tick == tick, STEPS.c.run == run, STEPS.c.ordinal == ordinal)
        .order_by(CANDIDATES.c.position)
    )
    return conn.execute(query).all()


def forget_tokens(conn: sa.Connection, trace_id: int, tick: int, keep: str) -> None:
    """When a tick is over: keep the tokens of its `chosen` candidates only, or of `none`."""
    chosen = sa.select(BLOCKS.c.candidate_id).where(
        BLOCKS.c.trace_id == trace_id, BLOCKS.c.tick == tick, BLOCKS.c.candidate_id.is_not(None)
    )
    sampled = sa.select(STEPS.c.id).where(
        STEPS.c.trace_id == trace_id, STEPS.c.tick == tick, STEPS.c.kind == "sample"
    )
    those = [CANDIDATES.c.step_id.in_(sampled), CANDIDATES.c.token_ids.is_not(None)]
    if keep == "chosen":
        those.append(CANDIDATES.c.id.not_in(chosen))
    conn.execute(sa.update(CANDIDATES).where(*those).values(token_ids=None, logprobs=None))


def save_verdicts(conn: sa.Connection, candidates: Sequence[Any], verdicts: Sequence[Verdict]) -> None:
    """Keep what linting found. A candidate is linted once; a step that is run again finds the same."""
    rows = [
        {
            "candidate_id": candidate.id,
            "compiles": verdict.compiles,
            "viable": verdict.viable,
            "error": verdict.error,
            "rewritten": verdict.rewritten if verdict.rewritten != candidate.text else None,
            **msgspec.structs.asdict(verdict.penalties),
        }
        for candidate, verdict in zip(candidates, verdicts, strict=True)
    ]
    conn.execute(sa.insert(PENALTIES), rows)


def save_scores(
    conn: sa.Connection,
    trace_id: int,
    step_id: int,
    step: Score,
    ids: Sequence[int | None],
    answers: Sequence[Sequence[YesNo]],
) -> None:
    """Keep every answer: one row per text and question."""
    stage = "selection" if step.sample is not None else "raw" if step.candidate is not None else "option"
    rows = [
        {
            "trace_id": trace_id,
            "step_id": step_id,
            "candidate_id": candidate_id,
            "position": position,
            "stage": stage,
            "rubric": prompts.rubric_version(),
            "question": question,
            "yes": answer.yes,
            "no": answer.no,
            "score": log_odds(answer),
        }
        for position, (candidate_id, per_text) in enumerate(zip(ids, answers, strict=True))
        for question, answer in zip(step.questions, per_text, strict=True)
    ]
    conn.execute(sa.insert(SCORES), rows)
