"""Forks in Postgres: where a trace stood when it came to a block, and copies of what it had by then.

What is copied is what the fork's own program and environment need: blocks, ticks, all that was executed with what
came of it, messages, and of the ticks that were open the whole journal. What the model was asked and what it wrote
stays with the trace that asked (steps.copy_of leads there), so candidates, scores, prompts and costs are counted
once; where a journal's results were emptied, they are put together again from there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.kernel import replay
from weavegen.kernel.replay import Entry, InheritedSettings, Start
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import Candidate, Penalties, Verdict, YesNo
from weavegen.store import environments, jobs
from weavegen.store import models as m
from weavegen.store import traces as trace_rows
from weavegen.store.models import StepStatus
from weavegen.trace.blocks import BlockType

BLOCKS, JOBS, JOB_SETTINGS, TICKS, TRACES = map(m.table, (m.Block, m.Job, m.JobSettings, m.Tick, m.Trace))


@dataclass(frozen=True)
class Forked:
    """A trace that is to be forked."""

    id: int
    job_id: int
    agent: str
    status: str
    blocks: int
    seed: int
    lag: float
    fork_of: int | None
    fork_at: int | None


@dataclass(frozen=True)
class Place:
    """A tick of it, with what was asked for in its newest run."""

    tick: int
    run: int
    revision: int
    """Of the settings."""
    paused_seconds: float
    start: Start
    steps: Sequence[Any]
    """Rows (id, ordinal, kind, status, request, result, at, origin)."""


@dataclass(frozen=True)
class Cut:
    """Between which two steps a trace is cut."""

    trace_id: int
    at: int
    """Index of the first block that is written anew."""
    tick: int
    """The tick that goes on, or begins."""
    callers: tuple[int, ...]
    """Ticks whose actions wait for its subagent, the innermost first."""
    before: int | None
    """The first step behind the cut; None: there is none yet."""
    clock: float
    """The trace's clock there; seconds since the epoch."""
    paused_seconds: float
    """For how long the job had been paused when the tick began."""

    @property
    def open(self) -> list[int]:
        """The ticks that are not over there."""
        return [self.tick, *self.callers]


# ------------------------------------------------------------------------------------------ looking

ONE = """
select t.id, t.job_id, j.agent, t.status, t.blocks, t.seed, t.lag, t.fork_of, t.fork_at
from traces t join jobs j on j.id = t.job_id where t.id = :trace
"""


def trace(conn: sa.Connection, trace_id: int) -> Forked:
    """A trace. Raises UsageError if there is none."""
    row = conn.execute(sa.text(ONE), {"trace": trace_id}).one_or_none()
    if row is None:
        raise UsageError(f"there is no trace {trace_id}: `weavegen status JOB` lists a job's traces")
    return Forked(*row)


def wanted(conn: sa.Connection, trace_id: int) -> tuple[int, int] | None:
    """Of a fork the trace and the block that it is to go on from; that trace then stands still until the end of
    the transaction. None: it is no fork."""
    found = conn.execute(sa.select(TRACES.c.fork_of, TRACES.c.fork_at).where(TRACES.c.id == trace_id)).one()
    if found.fork_of is None:
        return None
    conn.execute(sa.select(TRACES.c.id).where(TRACES.c.id == found.fork_of).with_for_update(read=True))
    return found.fork_of, found.fork_at


# Behind the last block: in the tick that was at work.
PLACE = """
select k.*, (select type from blocks where trace_id = k.trace_id and index = k.first_block - 1) as last_type
from ticks k join traces t on t.id = k.trace_id
where k.trace_id = :trace and k.number = coalesce(
  (select tick from blocks where trace_id = :trace and index = :at),
  (select tick from steps where trace_id = :trace and t.status <> 'ended' order by id desc limit 1))
"""
ASKED = """
select id, ordinal, kind, status, request, result, extract(epoch from finished_at)::double precision as at,
  coalesce(copy_of, id) as origin
from steps where trace_id = :trace and tick = :tick and run = :run order by ordinal
"""


def place(conn: sa.Connection, trace: Forked, at: int) -> Place | None:
    """The tick that block `at` is of, or would be; None where the trace is over before it."""
    row = conn.execute(sa.text(PLACE), {"trace": trace.id, "at": at}).one_or_none()
    if row is None:
        return None
    start = Start(
        trace_seed=trace.seed,
        tick=row.number,
        clock=row.clock,
        deadline=row.deadline,
        blocks=row.first_block,
        last_type=None if row.last_type is None else BlockType(row.last_type),
        repeats=row.repeats,
        subagent=row.subagent,
        state=row.state,
        lag=trace.lag,
        inherited=trace_rows.inherited(row.inherited),
    )
    steps = conn.execute(sa.text(ASKED), {"trace": trace.id, "tick": row.number, "run": row.run}).all()
    return Place(row.number, row.run, row.revision, row.paused_seconds, start, steps)


def cut(conn: sa.Connection, trace: Forked, place: Place, at: int, ordinal: int, clock: float) -> Cut:
    """The cut before a step of a tick."""
    callers: list[int] = []
    tick = place.tick
    of = sa.select(TICKS.c.caller).where(TICKS.c.trace_id == trace.id)
    while (caller := conn.execute(of.where(TICKS.c.number == tick)).scalar_one()) is not None:
        callers.append(caller)
        tick = caller
    before = place.steps[ordinal].id if ordinal < len(place.steps) else None
    return Cut(trace.id, at, place.tick, tuple(callers), before, clock, place.paused_seconds)


def bodies(conn: sa.Connection, trace_id: int, tick: int) -> dict[int, str]:
    """The bodies of a tick's blocks, by index."""
    query = sa.select(BLOCKS.c.index, BLOCKS.c.body).where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.tick == tick)
    return {index: body for index, body in conn.execute(query)}  # noqa: C416 (a row's own `index` is a method)


# ----------------------------------------------------------------------------- emptied results

SAMPLED = """
select c.step_id, c.text, c.finish_reason, c.tokens as n, r.tokens as prompt_tokens, r.length, c.type, p.*
from candidates c left join penalties p on p.candidate_id = c.id left join prompts r on r.step_id = c.step_id
where c.step_id = any(:steps) order by c.step_id, c.position
"""
SCORED = "select step_id, position, question, yes, no from scores where step_id = any(:steps)"


def entries(conn: sa.Connection, steps: Sequence[Any]) -> list[Entry]:
    """A run of a tick as its journal, also where its results were emptied. Raises JournalMismatch."""
    emptied = results(conn, steps)
    found = []
    for row in steps:
        step = replay.decode_step(row.kind, row.request)
        if row.status != StepStatus.DONE:
            found.append(Entry(step))
            continue
        result = emptied[row.id] if row.id in emptied else replay.decode_result(row.kind, row.result)
        found.append(Entry(step, done=True, result=result, at=row.at))
    return found


def results(conn: sa.Connection, steps: Sequence[Any]) -> dict[int, Any]:
    """What came of the steps of a tick whose results were emptied, by step, as the typed tables hold it."""
    emptied = [row for row in steps if row.status == StepStatus.DONE and row.result is None]
    if not emptied:
        return {}
    sampled: dict[int, list[Any]] = {}
    for row in conn.execute(sa.text(SAMPLED), {"steps": [row.origin for row in steps if row.kind == "sample"]}):
        sampled.setdefault(row.step_id, []).append(row)
    scored: dict[int, dict[tuple[int, str], YesNo]] = {}
    for row in conn.execute(sa.text(SCORED), {"steps": [row.origin for row in emptied if row.kind == "score"]}):
        scored.setdefault(row.step_id, {})[row.position, row.question] = YesNo(yes=row.yes, no=row.no)
    by_ordinal = {row.ordinal: row.origin for row in steps}
    found: dict[int, Any] = {}
    for row in emptied:
        if row.kind == "sample":
            found[row.id] = [
                Candidate(
                    text=one.text,
                    finish_reason=one.finish_reason,
                    tokens=one.n,
                    prompt_tokens=one.prompt_tokens if one.type == BlockType.ASSISTANT else None,
                    length=one.length,
                )
                for one in sampled[row.origin]
            ]
        elif row.kind == "lint":
            found[row.id] = [verdict(one) for one in sampled[by_ordinal[row.request["sample"]]]]
        elif row.kind == "score":
            answers, questions = scored[row.origin], row.request["questions"]
            texts = 1 + max(position for position, _ in answers)
            found[row.id] = [[answers[position, one] for one in questions] for position in range(texts)]
    return found


def verdict(row: Any) -> Verdict:
    """What linting found in a candidate."""
    return Verdict(
        compiles=row.compiles,
        error=row.error,
        rewritten=row.text if row.rewritten is None else row.rewritten,
        penalties=Penalties(**{name: getattr(row, name) for name in Penalties.__struct_fields__}),
        viable=row.viable,
    )


# ---------------------------------------------------------------------------------- queueing them


def enqueue(
    conn: sa.Connection, cut: Cut, n: int, *, seed: int, values: Mapping[str, Any], name: str | None, version: str
) -> tuple[int, list[int]]:
    """Write a job and its queued forks. Returns the job's id and theirs. Raises UsageError for wrong settings."""
    of = conn.execute(
        sa.select(TRACES.c.bootstrap_id, TRACES.c.params, TRACES.c.job_id, JOBS)
        .join(JOBS, JOBS.c.id == TRACES.c.job_id)
        .where(TRACES.c.id == cut.trace_id)
    ).one()
    job = {
        "name": name or f"fork of trace {cut.trace_id} at {cut.at}",
        "agent": of.agent,
        "model": of.model,
        "asked_model": of.asked_model,
        "seed": seed,
        "settings": of.settings,
        "version": version,
        "revision": of.revision,
        # So that what its traces have left does not change: pauses after the cut are none of theirs.
        "paused_seconds": cut.paused_seconds,
    }
    job_id = int(conn.execute(sa.insert(JOBS).values(job).returning(JOBS.c.id)).scalar_one())
    columns = ["job_id", "revision", "settings"]
    history = sa.select(sa.literal(job_id), JOB_SETTINGS.c.revision, JOB_SETTINGS.c.settings)
    conn.execute(sa.insert(JOB_SETTINGS).from_select(columns, history.where(JOB_SETTINGS.c.job_id == of.job_id)))
    if values:
        jobs.retune(conn, job_id, dict(values))
    rows = [
        {
            "job_id": job_id,
            "number": number,
            "bootstrap_id": of.bootstrap_id,
            "params": of.params,
            "seed": derive_seed(seed, "trace", number),
            "fork_of": cut.trace_id,
            "fork_at": cut.at,
        }
        for number in range(1, n + 1)
    ]
    new = sa.insert(TRACES).returning(TRACES.c.id, sort_by_parameter_order=True)
    return job_id, list(conn.execute(new, rows).scalars())


# ---------------------------------------------------------------------------------------- copying

COPY_TICKS = """
insert into ticks (trace_id, number, subagent, caller, deadline, run, revision, paused_seconds, inherited, state,
  first_block, repeats, clock, reward, finished_at)
select :child, k.number, k.subagent, k.caller, k.deadline, k.run,
  case when k.number = any(:open) then :revision else k.revision end, k.paused_seconds, k.inherited, k.state,
  k.first_block, k.repeats, k.clock,
  case when k.number = any(:open) then null else k.reward end,
  case when k.number = any(:open) then null else k.finished_at end
from ticks k where k.trace_id = :parent and (k.number = :tick or k.caller is null and k.number < :tick or exists (
  select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.id < :before))
order by k.number
"""
# A call that was under way is under way again. Ids go up as the steps were taken, which rebuilding relies on.
COPY_STEPS = """
with waiting as (
  select distinct on (s.tick) s.id from steps s
  where s.trace_id = :parent and s.id < :before and s.kind = 'work' and s.tick = any(:callers)
  order by s.tick, s.id desc
)
insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, result, queue, claims, ready_at,
  send_after, claimed_at, finished_at, copy_of)
select :child, s.tick, s.run, s.ordinal, s.kind, regexp_replace(s.label, '^trace \\d+', 'trace ' || :child),
  case when w.id is null then s.status else 'running' end, s.request,
  case when w.id is null then s.result end,
  case when s.queue like 'execute.%' then 'execute' else s.queue end, s.claims, s.ready_at, s.send_after,
  s.claimed_at, case when w.id is null then s.finished_at end, coalesce(s.copy_of, s.id)
from steps s left join waiting w on w.id = s.id
where s.trace_id = :parent and s.id < :before and (s.kind in ('execute', 'work')
  or (s.tick, s.run) in (select number, run from ticks where trace_id = :parent and number = any(:open)))
order by s.id
"""
# Each old step, and the copy of it.
COPIED = """
copied as (
  select o.id as old, c.id as new from steps c join steps o on o.trace_id = :parent
    and (o.tick, o.run, o.ordinal) = (c.tick, c.run, c.ordinal)
  where c.trace_id = :child
)
"""
COPY_BLOCKS = f"""
with {COPIED}
insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, block_size,
  bm25_query, title, tick_start, working_directory, compiles, question, answer, probability, ran, exception, tags,
  score, reward, preference, executed_by, created_at)
select :child, b.index, b.tick, b.subagent, b.type, b.body, b.rendered, b.timestamp, b.time_remaining,
  b.block_size, b.bm25_query, b.title, b.tick_start, b.working_directory, b.compiles, b.question, b.answer,
  b.probability, b.ran, b.exception, b.tags, b.score, case when b.tick = any(:open) then null else b.reward end,
  case when b.tick = any(:open) then null else b.preference end, c.new, b.created_at
from blocks b left join copied c on c.old = b.executed_by
where b.trace_id = :parent and b.index < :at order by b.index
"""
# They are in the index of the whole corpus already: where they were written.
UNQUEUE = "delete from corpus_queue where block_id in (select id from blocks where trace_id = :child)"
COPY_TOKENS = """
insert into block_tokens (trace_id, index, token_ids)
select :child, index, token_ids from block_tokens where trace_id = :parent and index < :at
"""
COPY_EVALUATIONS = f"""
with {COPIED}
insert into evaluations (trace_id, step_id, tick, position, scope, title, value, error)
select :child, c.new, e.tick, e.position, e.scope, e.title, e.value, e.error
from evaluations e join copied c on c.old = e.step_id where e.trace_id = :parent order by e.id
"""
COPY_LABELS = f"""
with {COPIED}
insert into grounded_labels (trace_id, step_id, position, question, answer)
select :child, c.new, l.position, l.question, l.answer
from grounded_labels l join copied c on c.old = l.step_id where l.trace_id = :parent order by l.id
"""
# What the bridge has not taken to Discord yet, it takes there once, for the other trace.
COPY_MESSAGES = """
with seen as (
  select c.id, (
    select coalesce(max(number), 0) from messages where channel_id = c.id and created_at <= :moment) as n
  from channels c where c.trace_id = :parent and c.opened_at <= :moment
), opened as (
  insert into channels (trace_id, name, messages, opened_at, closed_at, fetched, failure)
  select :child, c.name, s.n, c.opened_at, case when c.closed_at <= :moment then c.closed_at end, c.fetched,
    c.failure
  from channels c join seen s on s.id = c.id returning id, name
)
insert into messages (channel_id, number, kind, author, own, text, about, created_at, sent_at, discord_id)
select o.id, w.number, w.kind, w.author, w.own, w.text, w.about, w.created_at,
  coalesce(w.sent_at, clock_timestamp()), w.discord_id
from seen s join channels c on c.id = s.id join opened o on o.name = c.name
join messages w on w.channel_id = c.id and w.number <= s.n order by w.id
"""
COPY_EXCHANGES = f"""
with {COPIED}
insert into exchanges (step_id, turn, "do", answer, created_at)
select c.new, e.turn, e."do", e.answer, e.created_at from exchanges e join copied c on c.old = e.step_id
"""
# As many as its ticks were started over by then.
COPY_EVENTS = """
insert into events (trace_id, at, kind, detail)
select :child, at, kind, detail from events where trace_id = :parent and kind = 'tick restarted' order by id
limit (select coalesce(sum(run), 0) from ticks where trace_id = :child)
"""
# Those of the cut's tick that the fork tries itself replace their copies (store/programs.py).
COPY_PROGRAMS = """
insert into programs (trace_id, number, tick, generation, island, parents, source, score, signature, error,
  tried_at)
select :child, number, tick, generation, island, parents, source, score, signature, error, tried_at
from programs where trace_id = :parent and tick <= :tick order by number
"""
LAST_EXECUTED = """
select result from steps
where trace_id = :child and kind = 'execute' and status = 'done' order by id desc limit 1
"""
COUNT = """
update traces t set fork_at = :at, blocks = :at, bytes = b.size, shared_bytes = b.size,
  ticks = (select count(*) from ticks where trace_id = :child and number > 0 and finished_at is not null),
  server = (select server from traces where id = :parent),
  lag = round((extract(epoch from clock_timestamp()) - cast(:clock as double precision))::numeric, 3)
from (select coalesce(sum(octet_length(rendered)), 0) as size from blocks where trace_id = :child) b
where t.id = :child
"""
COPIES = (
    COPY_BLOCKS,
    UNQUEUE,
    COPY_TOKENS,
    COPY_EVALUATIONS,
    COPY_LABELS,
    COPY_MESSAGES,
    COPY_EXCHANGES,
    COPY_EVENTS,
    COPY_PROGRAMS,
    COUNT,
)


def begin(conn: sa.Connection, trace_id: int, cut: Cut, terms: trace_rows.TickSettings) -> None:
    """Give a trace that was just started what another one had when it came to the cut."""
    parent = trace(conn, cut.trace_id)
    values = {
        "child": trace_id,
        "parent": parent.id,
        "at": cut.at,
        "tick": cut.tick,
        "open": cut.open,
        "callers": list(cut.callers),
        "before": 2**63 - 1 if cut.before is None else cut.before,
        "revision": terms.revision,
        "clock": cut.clock,
    }
    moment = sa.select(sa.func.to_timestamp(cut.clock + parent.lag))
    values["moment"] = conn.execute(moment).scalar_one()
    for statement in (COPY_TICKS, COPY_STEPS):
        conn.execute(sa.text(statement), values)
    for number in cut.open:
        take_over(conn, trace_id, parent, number, cut.at)
    for statement in COPIES:
        conn.execute(sa.text(statement), values)
    last = conn.execute(sa.text(LAST_EXECUTED), values).scalar_one_or_none()
    if last is not None:
        environments.save_subagents(conn, trace_id, replay.decode_result("execute", last).subagents)


def take_over(conn: sa.Connection, trace_id: int, parent: Forked, number: int, at: int) -> None:
    """Note of an open tick who wrote its blocks so far and under which terms, and fill in its emptied results."""
    this = (TICKS.c.trace_id == trace_id) & (TICKS.c.number == number)
    theirs = (TICKS.c.trace_id == parent.id) & (TICKS.c.number == number)
    tick = conn.execute(sa.select(TICKS.c.revision, TICKS.c.run, TICKS.c.inherited).where(theirs)).one()
    terms = [*trace_rows.inherited(tick.inherited), InheritedSettings(at, parent.seed, parent.lag, tick.revision)]
    conn.execute(sa.update(TICKS).where(this).values(inherited=msgspec.to_builtins(terms)))
    copies = conn.execute(sa.text(ASKED), {"trace": trace_id, "tick": number, "run": tick.run}).all()
    steps = m.table(m.Step)
    for id, result in results(conn, copies).items():
        conn.execute(sa.update(steps).where(steps.c.id == id).values(result=result))


# ---------------------------------------------------------------------------------- starting over

RETREAT = (
    """
    update traces set fork_at = :first, shared_bytes = (
      select coalesce(sum(octet_length(rendered)), 0) from blocks where trace_id = :trace and index < :first)
    where id = :trace and fork_at > :first
    """,
    """
    update ticks set inherited = (
      select jsonb_agg(jsonb_set(terms, '{until}', to_jsonb(least((terms ->> 'until')::bigint, :first)))
        order by place)
      from jsonb_array_elements(inherited) with ordinality as x(terms, place))
    where trace_id = :trace and finished_at is null and jsonb_typeof(inherited) = 'array'
    """,
)


def retreat(conn: sa.Connection, trace_id: int, first: int) -> None:
    """A tick starts over at this block: from there on a fork no longer shares anything."""
    for statement in RETREAT:
        conn.execute(sa.text(statement), {"trace": trace_id, "first": first})
