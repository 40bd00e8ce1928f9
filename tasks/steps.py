"""The steps as tasks: sample, lint, score, retrieve, execute. Each takes the id of a journal row."""

import time
from functools import cache

import sqlalchemy as sa

from tasks.app import app
from tasks.context import Context
from tasks.worker import Done, settings, work_on
from weavegen import context, retrieval
from weavegen.lint import verdict
from weavegen.pool.client import Continuation, ModelClient
from weavegen.services.fleet import model_url
from weavegen.steps import Candidate, Lint, Retrieve, Sample, Score
from weavegen.store import candidates, traces
from weavegen.store.session import single
from weavegen.store.steps import Claimed

texts = cache(Context)


@cache
def client(url: str, model: str | None) -> ModelClient:
    return ModelClient(url, settings().api_key, model)


def model_for(trace_id: int, model: str | None) -> ModelClient:
    """The server of a trace: always the same one, whose cache holds the trace's prefix."""
    urls = model_url(settings()).split(",")
    return client(urls[trace_id % len(urls)].strip(), model)


@app.task(name="weavegen.sample")
def sample(step_id: int) -> str:
    """Ask the model for candidates."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Sample)
        prompt, fixed = texts().prompt(held, step.prompt)
        above, parent = step.prompt.prefix, None
        if step.parent is not None:
            ordinal, position = step.parent
            with single().connect() as conn:
                row = candidates.load(conn, held.trace_id, held.tick, held.run, ordinal)[position]
            above, parent = row.text, row.id
        began = time.monotonic()
        found = model_for(held.trace_id, fixed.model).sample(
            prompt + above,
            n=step.n,
            max_tokens=step.max_tokens,
            temperature=step.temperature,
            top_k=step.top_k,
            repetition_penalty=step.repetition_penalty,
            seed=step.seed,
            stop=context.LINE_STOP if step.prompt.query or step.prompt.next else context.STOP,
        )
        waited = time.monotonic() - began
        sampled = [
            Candidate(
                text=above + (context.without_begun_stop(one.text) if unfinished(step, one) else one.text),
                finish_reason=one.finish_reason,
                tokens=len(one.token_ids or ()),
            )
            for one in found
        ]

        def save(conn: sa.Connection) -> None:
            candidates.save(conn, held.trace_id, held.id, step, step.prompt.window[1], sampled, parent)
            of_block = 0 if step.prompt.query or step.prompt.next else step.n
            traces.count_sampled(conn, held.trace_id, of_block, sum(one.tokens for one in sampled))

        return Done(sampled, save, model_seconds=waited)

    return work_on(step_id, work)


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
        ordinal, position = (step.sample, None) if step.candidate is None else step.candidate
        if ordinal is not None:
            with single().connect() as conn:
                rows = candidates.load(conn, held.trace_id, held.tick, held.run, ordinal)
            ids = [row.id for row in rows] if position is None else [rows[position].id]
            bodies = [row.text for row in rows] if position is None else bodies
        prompt, fixed = texts().prompt(held, step.prompt)
        began = time.monotonic()
        flat = model_for(held.trace_id, fixed.model).yes_no(
            [prompt + context.question_suffix(body, question) for body in bodies for question in step.questions]
        )
        waited = time.monotonic() - began
        width = len(step.questions)
        answers = [flat[start : start + width] for start in range(0, len(flat), width)]
        return Done(
            answers,
            lambda conn: candidates.save_scores(conn, held.trace_id, held.id, step, ids, answers),
            model_seconds=waited,
        )

    return work_on(step_id, work)


@app.task(name="weavegen.retrieve")
def retrieve(step_id: int) -> str:
    """Find earlier blocks that bear on a text."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, Retrieve)
        with single().connect() as conn:
            found = retrieval.search(conn, held.trace_id, step)
        used = found[: step.limit]
        return Done(used, lambda conn: retrieval.save(conn, held.trace_id, held.id, step, found))

    return work_on(step_id, work)
