"""Campaigns as tasks: one batch of recorded texts at a time, behind everything that running traces ask for."""

import dataclasses
import itertools
import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

import msgspec
import sqlalchemy as sa

from tasks.app import Again, app
from tasks.model import pools, served
from tasks.worker import Leases, engine, settings
from weavegen.engine.prompt_assembly import Context, Read, about
from weavegen.errors import (
    JournalMismatch,
    ModelError,
    RolloutError,
    StepLost,
    TransientError,
    Unserved,
    UsageError,
)
from weavegen.evaluator.rubrics import Question, Rubric, parse
from weavegen.kernel import replay
from weavegen.kernel.steps import Sample, YesNo
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Tokens
from weavegen.store import campaigns
from weavegen.store.campaigns import AnsweredItem, Batch, Item
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed

log = logging.getLogger(__name__)
BEHIND = 1_000_000_000
"""Added to a trace's number it is the priority of a campaign's requests: beyond those of all running traces."""
AT_ONCE = 64
"""Questions in one request."""
ALL_OF_IT = 10**9
"""Tokens of a context that nothing was left out of."""

contexts = cache(Context)  # not the steps' own: it looks back, where they go on


@cache
def leases() -> Leases:
    return Leases("batches", campaigns.renew, campaigns.give_back_held)


@app.task(name="weavegen.sweep_campaigns")
def sweep_campaigns() -> str:
    """Send batches of campaigns, and again those that were lost. Runs every second or so."""
    return f"{send_batches()} batches sent"


@app.task(name="weavegen.rescore")
def rescore(batch_id: int) -> str:
    """Ask a campaign's questions about the texts of one batch."""
    with single().connect() as conn:
        held = campaigns.claim(conn, batch_id, f"{socket.gethostname()}:{os.getpid()}", settings().lease)
    if held is None:
        return "nothing to do"
    with leases().hold(held):
        try:
            said = work_on(held)
        except Again:
            send_batches()
            raise
    send_batches()
    return said


def send_batches() -> int:
    """Hand batches to Celery, as many as may be in flight. Returns how many."""
    with database().begin() as conn:
        batches = campaigns.to_send(conn, 2 * settings().lease)
    for batch_id, label in batches:
        app.send_task("weavegen.rescore", args=[batch_id], queue="score", argsrepr=label)
    return len(batches)


def work_on(held: Batch) -> str:
    """Ask about the items of a batch and store the answers; of what can't be asked about, the reason."""
    with single().connect() as conn:
        items = campaigns.load(conn, held)
    answered: list[AnsweredItem] = []
    failures: dict[int, str] = {}
    began = time.monotonic()
    try:
        if held.claims > campaigns.MAX_CLAIMS:
            raise RolloutError(f"{held.claims} workers took its batch and none came to an end with it")
        rubric = parse(held.rubric)
        for _, of_step in itertools.groupby(items, key=lambda item: item.step_id):
            for group in parts(list(of_step), rubric):
                ask_about(held, rubric, group, answered, failures)
    except TransientError as error:
        give_back(held, error)
    except (sa.exc.OperationalError, sa.exc.InterfaceError):
        raise  # the database is away; the lease runs out and the batch is sent again
    except Exception as error:
        if not isinstance(error, RolloutError | UsageError):
            log.exception("batch %d failed for a reason that nobody thought of", held.id)
        done = failures.keys() | {one.item for one in answered}
        failures |= {item.id: reason(error) for item in items if item.id not in done}
    try:
        with database().begin() as conn:
            campaigns.finish(conn, held, answered, failures, time.monotonic() - began)
    except StepLost as error:
        return str(error)
    return f"{len(answered)} texts asked about, {len(failures)} failed"


def reason(error: Exception) -> str:
    """Why an item failed, in one line."""
    kind = f"{error.kind}: " if isinstance(error, RolloutError) else ""
    known = isinstance(error, RolloutError | UsageError | JournalMismatch)
    return " ".join(f"{kind}{error}".split()) if known else f"bug: {type(error).__name__}: {error}"


def questions_of(item: Item, rubric: Rubric) -> list[Question]:
    """What is asked about an item, each question once."""
    found = {question.text: question for question in rubric.about(item.type)}
    if rubric.assertions:
        found |= {text: Question(text, "assertion") for text in item.assertions}
    return list(found.values())


def parts(items: Sequence[Item], rubric: Rubric) -> list[list[Item]]:
    """Items of one step in groups whose questions go into one request."""
    found: list[list[Item]] = []
    count = AT_ONCE
    for item in items:
        asked = len(questions_of(item, rubric))
        if count + asked > AT_ONCE:
            found.append([])
            count = 0
        found[-1].append(item)
        count += asked
    return found


def ask_about(
    held: Batch, rubric: Rubric, group: Sequence[Item], answered: list[AnsweredItem], failures: dict[int, str]
) -> None:
    """Ask about items of one step in one request; where that is refused, one by one. Raises TransientError."""
    try:
        answered += ask(held, rubric, group)
    except (RolloutError, UsageError, JournalMismatch) as error:
        if len(group) == 1 or not isinstance(error, ModelError):
            failures.update((item.id, reason(error)) for item in group)
            return
        for item in group:
            ask_about(held, rubric, [item], answered, failures)


def ask(held: Batch, rubric: Rubric, group: Sequence[Item]) -> list[AnsweredItem]:
    """The model's answers about items of one step, in order."""
    first = group[0]
    questions = [questions_of(item, rubric) for item in group]
    with single().connect() as conn:
        fixed = engine().fixed(conn, held.trace_id, first.revision)
    # What the model read was cut for a model of that length, if at all. Cut likewise it is the same text again.
    length = first.cut["model_length"] if first.cut is not None else ALL_OF_IT
    then = dataclasses.replace(fixed, settings=msgspec.structs.replace(fixed.settings, context=length))
    step = replay.decode_step("sample", first.request)
    assert isinstance(step, Sample)
    prompt = step.prompt
    at = Claimed(
        held.id, held.trace_id, first.tick, first.run, first.ordinal, held.claims, step, first.server,
        first.revision, first.restarts,
    )  # fmt: skip

    def call(client: ModelClient) -> tuple[str, str, Read, list[YesNo]]:
        read = contexts().read(at, prompt, then, client)
        same = isinstance(read.prompt, Tokens) and read.prompt.count == first.read_tokens  # as far as one can see
        asked = [
            about(
                client,
                read.prompt,
                prompt.prefix,
                item.body,
                rubric.wording(question.text),
                item.sampled if same else None,
                item.stopped,
            )
            for item, about_it in zip(group, questions, strict=True)
            for question in about_it
        ]
        return client.model, client.base_url, read, client.yes_no(asked, priority=BEHIND + held.trace_id)

    pool = pools().pool(held.model or fixed.model)
    home = first.server or ""  # the pool finds a place for those whose home it does not know
    sequences = sum(map(len, questions))
    turn = BEHIND + held.trace_id
    model, server, read, flat = served(pool, turn, home, sequences, call, held.trace_id, "rescore")
    answers = iter(flat)
    tokens = read.prompt.count if isinstance(read.prompt, Tokens) else None
    return [
        AnsweredItem(item.id, model, server, tokens, tuple((question, next(answers)) for question in about_it))
        for item, about_it in zip(group, questions, strict=True)
    ]


def give_back(held: Batch, error: TransientError) -> NoReturn:
    """Let the batch be sent again, later each time; in the end it has failed. Raises Again."""
    delay = min(campaigns.LONGEST_DELAY, 0.4 * 2.0**held.claims) * random.uniform(0.3, 1.0)
    with single().connect() as conn:
        campaigns.release(conn, held, str(error)[:2000], delay, counts=not isinstance(error, Unserved))
    raise Again(f"again in {delay:.1f} s: {error}")
