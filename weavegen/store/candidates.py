"""Prompts and candidates in Postgres: what the model read and wrote, with verdicts and scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel import prompts
from weavegen.kernel.selection import log_odds
from weavegen.kernel.steps import Candidate, Sample, Score, Verdict, YesNo
from weavegen.store.steps import Claimed

QUERY = "bm25-query"
"""Type of a candidate that is not a block but a query for its header."""
NEXT = "next-type"
"""Type of a candidate that is the name of the next block's type."""


def save(
    conn: Connection,
    trace_id: int,
    step_id: int,
    step: Sample,
    index: int,
    texts: Sequence[Candidate],
    tokens: Sequence[tuple[list[int] | None, list[float] | None]],
    parent_id: int | None = None,
) -> None:
    """Store every candidate of a round. In a tree search, `parent_id` is the node that they all continue.

    `tokens`: ids and logprobs of the sampled tokens of each candidate.
    """
    type = QUERY if step.prompt.query else NEXT if step.prompt.next else step.prompt.type
    same = {"trace": trace_id, "step": step_id, "index": index, "type": type, "parent": parent_id}
    same |= {"round": step.round, "depth": step.depth or None}
    rows = [
        {
            **same,
            "position": position,
            "token_ids": ids,
            "logprobs": logprobs,
            **{name: getattr(candidate, name) for name in ("text", "finish_reason", "tokens")},
        }
        for position, (candidate, (ids, logprobs)) in enumerate(zip(texts, tokens, strict=True))
    ]
    sql.run_each(conn, "store/save_candidate", rows)


def load(
    conn: Connection, trace_id: int, tick: int, run: int, ordinal: int, *, tokens: bool = False, legal: bool = False
) -> Sequence[Any]:
    """Rows of candidates_of_step.sql, by position. `tokens`: with token ids; `legal`: cut to legal structure."""
    place = {"trace": trace_id, "tick": tick, "run": run, "ordinal": ordinal, "tokens": tokens, "legal": legal}
    return sql.run(conn, "store/candidates_of_step", **place).all()


def save_verdicts(conn: Connection, candidates: Sequence[Any], verdicts: Sequence[Verdict]) -> None:
    """Store the verdicts on candidates. A candidate is linted once."""
    rows = [
        {
            "candidate": candidate.id,
            "rewritten": verdict.rewritten if verdict.rewritten != candidate.text else None,
            **{name: getattr(verdict, name) for name in ("compiles", "viable", "error")},
            **msgspec.structs.asdict(verdict.penalties),
        }
        for candidate, verdict in zip(candidates, verdicts, strict=True)
    ]
    sql.run_each(conn, "store/save_verdict", rows)


def save_scores(
    conn: Connection,
    trace_id: int,
    step_id: int,
    step: Score,
    ids: Sequence[int | None],
    answers: Sequence[Sequence[YesNo]],
) -> None:
    """Store every answer: one row per text and question."""
    stage = "selection" if step.sample is not None else "raw" if step.candidate is not None else "option"
    same = {"trace": trace_id, "step": step_id, "stage": stage, "rubric": prompts.rubric_version()}
    rows = [
        {
            **same,
            "candidate": candidate_id,
            "position": position,
            "question": prompts.question_of(asked),
            "wording": asked if asked != prompts.question_of(asked) else None,
            "score": log_odds(answer),
            **msgspec.structs.asdict(answer),
        }
        for position, (candidate_id, per_text) in enumerate(zip(ids, answers, strict=True))
        for asked, answer in zip(step.questions, per_text, strict=True)
    ]
    sql.run_each(conn, "store/save_score", rows)


def save_prompt(conn: Connection, held: Claimed, blocks: Mapping[int, Sequence[int]], **values: Any) -> None:
    """Record what the model read in a step. `values`: columns of the table prompts.

    `blocks`: token ids of blocks by index, some of which may be stored already.
    """
    sql.run(conn, "store/save_prompt", trace=held.trace_id, step=held.id, **values)
    rows = [{"trace": held.trace_id, "index": index, "token_ids": ids} for index, ids in blocks.items()]
    sql.run_each(conn, "store/save_block_tokens", rows)
