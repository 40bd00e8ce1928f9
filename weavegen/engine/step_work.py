"""The work of each kind of step: what a worker does with a claimed step before its result is stored."""

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from weavegen import sql
from weavegen.database import Connection
from weavegen.engine.execution import execute
from weavegen.engine.model_calls import Call
from weavegen.engine.prompt_assembly import Body, Read, begun, question_prompt
from weavegen.engine.worker import Done, Work, Worker
from weavegen.errors import ChatOnly, ModelError
from weavegen.kernel import context
from weavegen.kernel.steps import Candidate, Execute, Lint, LookUp, Prompt, Retrieve, Sample, Score, Step, YesNo
from weavegen.linting.lint import verdict
from weavegen.pool.chat import ANSWER_TOKENS
from weavegen.pool.client import DEFAULT_CHARS_PER_TOKEN, ModelClient
from weavegen.pool.tokens import Continuation, Sampled, Tokens
from weavegen.search import lookups, retrieval
from weavegen.store import candidates
from weavegen.store.session import database, single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec
from weavegen.trace.blocks import MESSAGE

T = TypeVar("T")
MAX_MESSAGE_TOKENS = 4096  # of a message, where neither the job nor the server limits it


def sample(worker: Worker, claim: Claimed, step: Sample) -> Done:
    """Sample candidates from the model."""
    with single().connect() as conn:
        spec = worker.engine.spec(conn, claim.trace_id, claim.revision)
        above, parent = step.prompt.prefix, None
        if step.parent is not None:
            ordinal, position = step.parent
            row = candidates.load(conn, claim.trace_id, claim.tick, claim.run, ordinal)[position]
            above, parent = row.text, row.id

    def complete(client: ModelClient) -> tuple[str, Read, Sampled, tuple[str, ...]]:
        template = worker.pools.template(spec, client)
        read = worker.texts.read(claim, step.prompt, spec, template, client)
        stops = context.stops(step.prompt, template)
        prompt = begun(client, read.prompt, step.prompt.prefix, above)
        piece = prompt if isinstance(prompt, Tokens) else client.piece(prompt)
        sampled = client.sample(
            prompt,
            n=step.n,
            max_tokens=max_tokens(step, read, piece.count),
            temperature=step.temperature,
            top_k=step.top_k,
            repetition_penalty=step.repetition_penalty,
            seed=step.seed,
            stop=stops,
            priority=claim.trace_id,
        )
        return client.base_url, read, sampled, stops

    call = partial(by_chat_or_not, spec, step.prompt, partial(chat, worker, claim, step, spec), complete)
    began = time.monotonic()
    server, read, answer, stops = worker.pools.call(claim, spec.model, step.n, call)
    seconds = time.monotonic() - began
    result = [
        Candidate(
            text=above + continuation_text(step, continuation, stops),
            finish_reason=continuation.finish_reason,
            tokens=continuation.tokens or 0,
            prompt_tokens=(answer.prompt_tokens or read.count) if read.count else None,
            length=read.length,
        )
        for continuation in answer.continuations
    ]
    tokens = [(continuation.token_ids, continuation.logprobs) for continuation in answer.continuations]

    def save(conn: Connection) -> None:
        candidates.save(conn, claim.trace_id, claim.id, step, step.prompt.window[1], result, tokens, parent)
        of_block = 0 if step.prompt.query or step.prompt.next else step.n
        tokens_of_all = sum(candidate.tokens for candidate in result)
        sql.run(conn, "store/count_sampled", trace=claim.trace_id, candidates=of_block, tokens=tokens_of_all)
        save_prompt(conn, claim, spec, server, read, answer)

    return Done(result, save, model_seconds=seconds, stored=read.stored)


def by_chat_or_not(spec: TraceSpec, prompt: Prompt, chat: Call[T], complete: Call[T], client: ModelClient) -> T:
    """Ask by `chat` or by `complete`. Conversations go through the chat API, where the server applies the template,
    if the server has no completions, or if neither the job nor the server gives a template.
    """
    if prompt.type not in MESSAGE:
        return complete(client)
    try:
        by_chat = client.chat_only or (spec.template is None and client.chats_better)
        return (chat if by_chat else complete)(client)
    except ChatOnly:
        return chat(client)


def chat(
    worker: Worker, claim: Claimed, step: Sample, spec: TraceSpec, client: ModelClient
) -> tuple[str, Read, Sampled, tuple[str, ...]]:
    """Sample messages over a chat API: the server's URL, what was read, the messages, and the stop strings."""
    said, read = worker.texts.said(claim, step.prompt, spec, client)
    stops = (context.LEFT_OUT,)
    sampled = client.chat.sample(
        client.model,
        said,
        n=step.n,
        max_tokens=step.max_tokens or None,
        temperature=step.temperature,
        seed=step.seed,
        stop=stops,
    )
    count, most = sampled.prompt_tokens or read.count, spec.settings.context
    if most and count >= most:  # only the server can count them
        raise ModelError(f"the conversation takes {count} of {most} tokens: no room is left")
    return client.base_url, read, sampled, stops


def max_tokens(step: Sample, read: Read, count: int) -> int:
    """Tokens that the continuation of a prompt of `count` tokens may have."""
    if read.most is None:
        return step.max_tokens or MAX_MESSAGE_TOKENS
    room = max(1, read.most - count)
    return min(step.max_tokens or room, room)


def continuation_text(step: Sample, continuation: Continuation, stops: tuple[str, ...]) -> str:
    """The sampled text. A node of a tree that another may continue loses an unfinished stop string at its end."""
    if step.depth > 0 and continuation.finish_reason == "length":
        return context.without_begun_stop(continuation.text, stops)
    return continuation.text


def lint(worker: Worker, claim: Claimed, step: Lint) -> Done:
    """Check candidates and cut them to their legal structure."""
    with single().connect() as conn:
        rows = candidates.load(conn, claim.trace_id, claim.tick, claim.run, step.sample)
    verdicts = [verdict(step, row.text, row.tokens, cut=row.finish_reason == "length") for row in rows]
    return Done(verdicts, lambda conn: candidates.save_verdicts(conn, rows, verdicts))


def score(worker: Worker, claim: Claimed, step: Score) -> Done:
    """Ask the model yes/no questions about texts."""
    with single().connect() as conn:
        spec = worker.engine.spec(conn, claim.trace_id, claim.revision)
        other = spec.judged_by_another
        ids, texts = scored_texts(conn, claim, step, tokens=not other)

    kept = worker.judged_texts if other else worker.texts

    def judge(client: ModelClient) -> tuple[str, Read, list[YesNo]]:
        said, read = kept.said(claim, step.prompt, spec, client)
        asked = [f"{text.text}\n\n{question}" for text in texts for question in step.questions]
        used = read.count + math.ceil(max(map(len, asked)) / DEFAULT_CHARS_PER_TOKEN)
        room = ANSWER_TOKENS if read.length is None else read.length - used
        return client.base_url, read, client.chat.yes_no(client.model, said, asked, seed=claim.id, room=room)

    def complete(client: ModelClient) -> tuple[str, Read, list[YesNo]]:
        template = client.template() if other else worker.pools.template(spec, client)
        read = kept.read(claim, step.prompt, spec, template, client)
        stops = context.block_stops(template)
        asked = [
            question_prompt(client, read.prompt, step.prompt.prefix, text, question, stops)
            for text in texts
            for question in step.questions
        ]
        return client.base_url, read, client.yes_no(asked, priority=claim.trace_id)

    call = partial(by_chat_or_not, spec, step.prompt, judge, complete)
    began = time.monotonic()
    sequences = len(texts) * len(step.questions)
    server, read, flat = worker.pools.call(claim, spec.judge, sequences, call, judges=other)
    seconds = time.monotonic() - began
    width = len(step.questions)
    answers = [flat[start : start + width] for start in range(0, len(flat), width)]

    def save(conn: Connection) -> None:
        candidates.save_scores(conn, claim.trace_id, claim.id, step, ids, answers)
        save_prompt(conn, claim, spec, server, read)

    return Done(answers, save, model_seconds=seconds, stored=read.stored)


def scored_texts(conn: Connection, claim: Claimed, step: Score, *, tokens: bool) -> tuple[list[int | None], list[Body]]:
    """Candidate ids and texts to score. `tokens`: with the ids of their tokens, where they are exactly as sampled."""
    unsampled = [Body(text) for text in step.texts]
    if step.candidate is not None:
        ordinal, position = step.candidate
        rows = candidates.load(conn, claim.trace_id, claim.tick, claim.run, ordinal)
        return [rows[position].id], unsampled
    if step.sample is None:
        return [None] * len(unsampled), unsampled
    rows = candidates.load(conn, claim.trace_id, claim.tick, claim.run, step.sample, tokens=tokens)
    texts = [Body(row.text, row.token_ids if row.depth is None else None, row.finish_reason == "stop") for row in rows]
    return [row.id for row in rows], texts


def retrieve(worker: Worker, claim: Claimed, step: Retrieve) -> Done:
    """Find earlier blocks by BM25."""
    with single().connect() as conn:
        hits = retrieval.search(conn, claim.trace_id, step)
    return Done(hits[: step.limit], lambda conn: retrieval.save(conn, claim.trace_id, claim.id, step, hits))


def look_up(worker: Worker, claim: Claimed, step: LookUp) -> Done:
    """Call a tool that only reads."""
    return Done(lookups.consult(database(), claim.trace_id, step.tool, step.arguments))


def save_prompt(
    conn: Connection, claim: Claimed, spec: TraceSpec, server: str, read: Read, sampled: Sampled | None = None
) -> None:
    """Store what the model read in a step. `sampled`: what it wrote; None: it judged."""
    writes = sampled is not None or not spec.judged_by_another
    keep = spec.settings.tokens != "none" and writes  # the corpus has the tokens of one model
    candidates.save_prompt(
        conn,
        claim,
        server=server,
        **{name: getattr(read, name) for name in ("model", "first_block", "cut", "length")},
        tokens=read.prompt.count if isinstance(read.prompt, Tokens) else sampled and sampled.prompt_tokens,
        cached=sampled and sampled.cached_tokens,
        token_ids=read.asking.ids if keep and read.asking else None,
        blocks={index: piece.tokens.ids for index, piece in read.unstored.items() if keep and piece.tokens},
    )


WORK: Mapping[type[Step], Work] = {
    Sample: sample,
    Lint: lint,
    Score: score,
    Retrieve: retrieve,
    Execute: execute,
    LookUp: look_up,
}
"""Steps of the other kinds wait: no worker takes them."""
