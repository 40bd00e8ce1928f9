"""Campaigns: further questions about recorded texts, asked in batches with less priority than all running traces."""

import dataclasses
import itertools
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from weavegen import sql
from weavegen.engine.leases import Leases
from weavegen.engine.prompt_assembly import Body, Context, Read, question_prompt
from weavegen.engine.worker import Outcome, Worker, claimant, give_back, held
from weavegen.errors import JournalMismatch, ModelError, RolloutError, StepLost, TransientError, UsageError
from weavegen.evaluator.rubrics import parse
from weavegen.kernel import context, replay
from weavegen.kernel.rubric import Question, Rubric
from weavegen.kernel.steps import Sample, YesNo
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Tokens
from weavegen.store import campaigns
from weavegen.store.campaigns import AnsweredItem
from weavegen.store.leases import MAX_CLAIMS
from weavegen.store.session import database, single
from weavegen.store.steps import Claimed

log = logging.getLogger(__name__)
PRIORITY_OFFSET = 1_000_000_000
"""Added to a trace's number, this is the priority of a campaign's requests: after those of all running traces."""
MAX_QUESTIONS = 64  # in one request


class Rescorer:
    """Asks the questions of campaigns. One for each process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.leases = Leases("batches", campaigns.LEASES, worker.config.lease)
        self.texts = Context()
        """Not the cache of the worker's steps: campaigns read old blocks, steps read the newest."""

    def send_batches(self) -> int:
        """Send batches, and lost ones again, up to the limit of batches in flight. Returns how many."""
        with database().begin() as conn:
            batches = campaigns.batches_to_send(conn, 2 * self.worker.config.lease)
        for batch_id, label in batches:
            self.worker.dispatch("weavegen.rescore", batch_id, "score", label)
        return len(batches)

    def run(self, batch_id: int) -> Outcome:
        """Ask a campaign's questions about the texts of one batch, then send the next ones."""
        if self.leases.holds(batch_id):  # as in Worker.run
            return Outcome("ignored", "this process does it already")
        with single().connect() as conn:
            batch = campaigns.claim(conn, batch_id, claimant(), self.worker.config.lease)
        if batch is None:
            return Outcome("ignored", "nothing to do")
        outcome = held(self.leases, batch, self._run)
        self.send_batches()
        return outcome

    def _run(self, batch: Any) -> Outcome:
        with single().connect() as conn:
            items = sql.run(conn, "store/campaign_items", batch=batch.id).all()
        results: dict[int, AnsweredItem | str] = {}
        began = time.monotonic()
        try:
            if batch.claims > MAX_CLAIMS:
                raise RolloutError(f"{batch.claims} workers claimed its batch and none of them finished it")
            rubric = parse(batch.rubric)
            for _, of_step in itertools.groupby(items, key=lambda item: item.step_id):
                for group in groups(list(of_step), rubric):
                    self._ask_about(batch, rubric, group, results)
        except TransientError as error:
            return give_back(campaigns.LEASES, batch, error)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:
            if not isinstance(error, RolloutError | UsageError):
                log.exception("batch %d: unexpected error", batch.id)
            for item in items:
                results.setdefault(item.id, failure(error))
        answered = [result for result in results.values() if isinstance(result, AnsweredItem)]
        failures = {item: result for item, result in results.items() if isinstance(result, str)}
        try:
            with database().begin() as conn:
                campaigns.finish(conn, batch, answered, failures, time.monotonic() - began)
        except StepLost as error:
            return Outcome("ignored", str(error))
        return Outcome("done", f"{len(answered)} texts asked about, {len(failures)} failed")

    def _ask_about(
        self, batch: Any, rubric: Rubric, group: Sequence[Any], results: dict[int, AnsweredItem | str]
    ) -> None:
        """Ask about items of one step in one request; where it is refused, item by item. Raises TransientError.

        `results` gets the answers or the failure of each item.
        """
        try:
            results |= {answer.item: answer for answer in self._ask(batch, rubric, group)}
        except (RolloutError, UsageError, JournalMismatch) as error:
            if len(group) == 1 or not isinstance(error, ModelError):
                results |= {item.id: failure(error) for item in group}
                return
            for item in group:
                self._ask_about(batch, rubric, [item], results)

    def _ask(self, batch: Any, rubric: Rubric, group: Sequence[Any]) -> list[AnsweredItem]:
        """The model's answers about items of one step, in order."""
        first = group[0]
        if first.lost is not None:
            raise RolloutError(f"{first.lost}: what the model read before the text can't be put together again")
        questions = [questions_of(item, rubric) for item in group]
        with single().connect() as conn:
            spec = self.worker.engine.spec(conn, batch.trace_id, first.revision)
        # The prompt was cut, if at all, for a model of this length. Cut to the same length it is the same text.
        length = None if first.cut is None else first.cut["model_length"]
        spec_then = dataclasses.replace(spec, settings=msgspec.structs.replace(spec.settings, context=length))
        step = replay.decode_step("sample", first.request)
        assert isinstance(step, Sample)
        claim = Claimed(
            batch.id, batch.trace_id, first.tick, first.run, first.ordinal, batch.claims, step, first.server,
            first.revision, first.restarts,
        )  # fmt: skip

        def call(client: ModelClient) -> tuple[str, str, Read, list[YesNo]]:
            other = batch.model is not None and batch.model != spec.model
            template = client.template() if other else self.worker.pools.template(spec, client)
            read = self.texts.read(claim, step.prompt, spec_then, template, client)
            stops = context.block_stops(template)
            same = isinstance(read.prompt, Tokens) and read.prompt.count == first.read_tokens  # probably
            bodies = [Body(item.body, item.sampled if same else None, item.stopped) for item in group]
            asked = [
                question_prompt(client, read.prompt, step.prompt.prefix, body, rubric.asked(question.text), stops)
                for body, of_body in zip(bodies, questions, strict=True)
                for question in of_body
            ]
            priority = PRIORITY_OFFSET + batch.trace_id
            return client.model, client.base_url, read, client.yes_no(asked, priority=priority)

        pools = self.worker.pools
        model, server, read, flat = pools.metered_call(
            pools.pool(batch.model or spec.model),
            PRIORITY_OFFSET + batch.trace_id,
            first.server or "",  # the pool chooses where it does not know the home
            sum(map(len, questions)),
            call,
            batch.trace_id,
            "rescore",
        )
        answers = iter(flat)
        tokens = read.prompt.count if isinstance(read.prompt, Tokens) else None
        answered = (tuple((question, next(answers)) for question in of_item) for of_item in questions)
        return [AnsweredItem(item.id, model, server, tokens, own) for item, own in zip(group, answered, strict=True)]


def failure(error: Exception) -> str:
    """Why an item failed, in one line."""
    kind = f"{error.kind}: " if isinstance(error, RolloutError) else ""
    known = isinstance(error, RolloutError | UsageError | JournalMismatch)
    return " ".join(f"{kind}{error}".split()) if known else f"bug: {type(error).__name__}: {error}"


def questions_of(item: Any, rubric: Rubric) -> list[Question]:
    """The questions about an item, each once."""
    questions = {question.text: question for question in rubric.about(item.type)}
    if rubric.assertions:
        questions |= {text: Question(text, "assertion") for text in item.assertions}
    return list(questions.values())


def groups(items: Sequence[Any], rubric: Rubric) -> list[list[Any]]:
    """Items of one step in groups whose questions fit into one request."""
    result: list[list[Any]] = []
    count = MAX_QUESTIONS
    for item in items:
        questions = len(questions_of(item, rubric))
        if count + questions > MAX_QUESTIONS:
            result.append([])
            count = 0
        result[-1].append(item)
        count += questions
    return result
