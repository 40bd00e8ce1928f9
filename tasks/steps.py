"""The steps as tasks: sample, lint, score, retrieve, execute. Each takes the id of a journal row."""

import time
from functools import cache

import sqlalchemy as sa

from tasks.app import app
from tasks.model import ask
from tasks.worker import Done, engine, work_on
from weavegen import search
from weavegen.engine.prompt_assembly import Context, Read, about, begun
from weavegen.kernel import context
from weavegen.kernel.steps import Candidate, Lint, Retrieve, Sample, Score, YesNo
from weavegen.linting.lint import verdict
from weavegen.pool.client import Continuation, ModelClient, Sampled
from weavegen.pool.tokens import Tokens
from weavegen.store import candidates, prompts, traces
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec

texts = cache(Context)


@app.task(name="weavegen.sample")
def sample(step_id: int) -> str:
    """Ask the model for candidates."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Sample)
        with single().connect() as conn:
            fixed = engine().fixed(conn, held.trace_id, held.revision)
            above, parent = step.prompt.prefix, None
            if step.parent is not None:
                ordinal, position = step.parent
                row = candidates.load(conn, held.trace_id, held.tick, held.run, ordinal)[position]
                above, parent = row.text, row.id

        def call(client: ModelClient) -> tuple[str, Read, Sampled]:
            read = texts().read(held, step.prompt, fixed, client)
            sampled = client.sample(
                begun(client, read.prompt, step.prompt.prefix, above),
                n=step.n,
                max_tokens=most(step, read),
                temperature=step.temperature,
                top_k=step.top_k,
                repetition_penalty=step.repetition_penalty,
                seed=step.seed,
                stop=context.stops(step.prompt, fixed.settings),
                priority=held.trace_id,
            )
            return client.base_url, read, sampled

        began = time.monotonic()
        server, read, answer = ask(held, fixed.model, step.n, call)
        waited = time.monotonic() - began
        found = answer.continuations
        sampled = [
            Candidate(
                text=above + (context.without_begun_stop(one.text) if unfinished(step, one) else one.text),
                finish_reason=one.finish_reason,
                tokens=len(one.token_ids or ()),
                prompt_tokens=(answer.prompt_tokens or read.count) if read.count else None,
                length=read.length,
            )
            for one in found
        ]
        tokens = [(one.token_ids, one.logprobs) for one in found]

        def save(conn: sa.Connection) -> None:
            candidates.save(conn, held.trace_id, held.id, step, step.prompt.window[1], sampled, tokens, parent)
            of_block = 0 if step.prompt.query or step.prompt.next else step.n
            traces.count_sampled(conn, held.trace_id, of_block, sum(one.tokens for one in sampled))
            record(conn, held, fixed, server, read, answer.prompt_tokens, answer.cached_tokens)

        return Done(sampled, save, model_seconds=waited, stored=read.stored)

    return work_on(step_id, work)


MOST_TOKENS = 4096
"""Of a message, where neither the job nor the server says how many there may be."""


def most(step: Sample, read: Read) -> int:
    """Tokens that a continuation may have."""
    if read.length is None:
        return step.max_tokens or MOST_TOKENS
    room = read.length - read.count
    return min(step.max_tokens or room, room)


def record(
    conn: sa.Connection,
    held: Claimed,
    fixed: TraceSpec,
    server: str,
    read: Read,
    counted: int | None = None,
    cached: int | None = None,
) -> None:
    """Keep what the model read in a step; `counted`: tokens of the prompt, by the server."""
    keep = fixed.settings.tokens != "none"
    prompts.save(
        conn,
        held,
        server=server,
        first_block=read.first_block,
        tokens=read.prompt.count if isinstance(read.prompt, Tokens) else counted,
        cached=cached,
        cut=read.cut,
        asking=read.asking if keep else None,
        blocks=read.new_tokens if keep else {},
        length=read.length,
    )


def unfinished(step: Sample, found: Continuation) -> bool:
    """Whether the text is a tree's node that another may go on from."""
    return step.depth > 0 and found.finish_reason == "length"


@app.task(name="weavegen.lint")
def lint_candidates(step_id: int) -> str:
    """Check candidates and cut them to their legal structure."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Lint)
        with single().connect() as conn:
            rows = candidates.load(conn, held.trace_id, held.tick, held.run, step.sample)
        verdicts = [verdict(step, row.text, row.tokens, cut=row.finish_reason == "length") for row in rows]
        return Done(verdicts, lambda conn: candidates.save_verdicts(conn, rows, verdicts))

    return work_on(step_id, work)


@app.task(name="weavegen.score")
def score(step_id: int) -> str:
    """Ask the model yes/no questions about texts."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Score)
        ids: list[int | None] = [None] * len(step.texts)
        bodies = list(step.texts)
        stopped = [False] * len(step.texts)
        sampled: list[list[int] | None] = [None] * len(step.texts)
        ordinal, position = (step.sample, None) if step.candidate is None else step.candidate
        with single().connect() as conn:
            fixed = engine().fixed(conn, held.trace_id, held.revision)
            if ordinal is not None:
                rows = candidates.load(conn, held.trace_id, held.tick, held.run, ordinal, tokens=position is None)
                ids = [row.id for row in rows] if position is None else [rows[position].id]
                if position is None:
                    bodies = [row.text for row in rows]
                    stopped = [row.finish_reason == "stop" for row in rows]
                    sampled = [row.token_ids if row.depth is None else None for row in rows]

        def call(client: ModelClient) -> tuple[str, Read, list[YesNo]]:
            read = texts().read(held, step.prompt, fixed, client)
            asked = [
                about(client, read.prompt, step.prompt.prefix, body, question, tokens, ended)
                for body, tokens, ended in zip(bodies, sampled, stopped, strict=True)
                for question in step.questions
            ]
            return client.base_url, read, client.yes_no(asked, priority=held.trace_id)

        began = time.monotonic()
        server, read, flat = ask(held, fixed.model, len(bodies) * len(step.questions), call)
        waited = time.monotonic() - began
        width = len(step.questions)
        answers = [flat[start : start + width] for start in range(0, len(flat), width)]

        def save(conn: sa.Connection) -> None:
            candidates.save_scores(conn, held.trace_id, held.id, step, ids, answers)
            record(conn, held, fixed, server, read)

        return Done(answers, save, model_seconds=waited, stored=read.stored)

    return work_on(step_id, work)


@app.task(name="weavegen.retrieve")
def retrieve(step_id: int) -> str:
    """Find earlier blocks that bear on a text."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Retrieve)
        with single().connect() as conn:
            found = search.search(conn, held.trace_id, step)
        used = found[: step.limit]
        return Done(used, lambda conn: search.save(conn, held.trace_id, held.id, step, found))

    return work_on(step_id, work)
