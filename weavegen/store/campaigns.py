"""Campaigns in Postgres: items in batches, claimed with a lease, finished by compare-and-set; corrections."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from weavegen.errors import StepLost, UsageError
from weavegen.evaluator.rubrics import Question, Rubric
from weavegen.kernel.selection import log_odds
from weavegen.kernel.steps import YesNo
from weavegen.store import models as m
from weavegen.store.models import BatchStatus, CampaignState
from weavegen.store.models.base import array_text

if TYPE_CHECKING:
    from weavegen.evaluator.calibration import Fit

CAMPAIGNS, BATCHES, ITEMS, ANSWERS, CORRECTIONS, CORRECTED = map(
    m.table, (m.Campaign, m.CampaignBatch, m.CampaignItem, m.Answer, m.Correction, m.CorrectedQuestion)
)
PER_BATCH = 64
"""Texts of one trace that a worker asks about before it stores the answers: all of one round of sampling."""
IN_FLIGHT = 32
"""Batches that are sent or being worked on at a time, of all campaigns: the queue is the traces' own too."""
MAX_CLAIMS = 30
"""A batch that was taken this often without an end fails: something about it kills or blocks its workers."""
SEND_LOCK = 0x77656273
"""Advisory lock under which batches are picked to be sent, so that no more than IN_FLIGHT are."""
LONGEST_DELAY = 45.0
"""Seconds before a batch that was given back is sent again, at most."""


# ------------------------------------------------------------------------------------------ what is asked about


@dataclass(frozen=True)
class Chosen:
    """What a condition chose, and what of it can be asked about."""

    found: int
    """Rows that the condition found."""
    asked: int
    """Of these, the ones that the model wrote and that the rubric has questions about."""
    traces: int
    questions: int
    """Questions about all of them, those of assertions left out."""


WANTED = """
    select row_number() over (order by c.trace_id, c.step_id, c.position, i.id) as place,
      c.trace_id, c.id as candidate_id, case when :over = 'blocks' then i.id end as block_id, c.type,
      (row_number() over (partition by c.trace_id order by c.step_id, c.position, i.id) - 1) / :size as number
    from unnest(cast(:ids as bigint[])) i (id)
    left join blocks b on b.id = i.id and :over = 'blocks'
    join candidates c on c.id = case when :over = 'blocks' then b.candidate_id else i.id end
    where c.type = any(cast(:types as text[])) or (cast(:assertions as boolean) and exists (
      select from grounded_labels g join blocks e on e.executed_by = g.step_id
      where e.candidate_id = c.id and e.type = c.type))
"""


def _parameters(rubric: Rubric, over: str, ids: Sequence[int]) -> dict[str, Any]:
    return {
        "over": over, "ids": array_text(ids), "types": [str(type) for type in rubric.types],
        "assertions": rubric.assertions, "size": PER_BATCH,
    }  # fmt: skip


def chosen(conn: sa.Connection, rubric: Rubric, over: str, ids: Sequence[int]) -> Chosen:
    """What of these blocks or candidates a campaign would ask about. Writes nothing."""
    counts = f"select type, count(*) as items from ({WANTED}) w group by type"
    parameters = _parameters(rubric, over, ids)
    rows = conn.execute(sa.text(counts), parameters).all()
    traces = conn.execute(sa.text(f"select count(distinct trace_id) from ({WANTED}) w"), parameters).scalar_one()
    return Chosen(
        found=len(ids),
        asked=sum(row.items for row in rows),
        traces=traces,
        questions=sum(row.items * len(rubric.about(row.type)) for row in rows),
    )


def create(
    conn: sa.Connection,
    name: str,
    rubric: Rubric,
    over: str,
    ids: Sequence[int],
    *,
    condition: str,
    model: str | None,
    version: str,
) -> int:
    """Write a campaign about these blocks or candidates. Returns its id. Raises UsageError: the name is taken."""
    if conn.execute(sa.select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.name == name)).first() is not None:
        raise UsageError(
            f"there is a campaign {name!r} already, and answers are never overwritten: give another --name, "
            f"or go on with it by --resume {name}"
        )
    values = {
        "name": name, "over": over, "condition": condition, "rubric": rubric.text,
        "rubric_version": rubric.version, "model": model, "version": version,
    }  # fmt: skip
    campaign = conn.execute(sa.insert(CAMPAIGNS).values(values).returning(CAMPAIGNS.c.id)).scalar_one()
    write = f"""
        with wanted as materialized ({WANTED}),
        batches as (
          insert into campaign_batches (campaign_id, trace_id, number)
          select :campaign, trace_id, number from wanted group by trace_id, number order by trace_id, number
          returning id, trace_id, number
        )
        insert into campaign_items (batch_id, candidate_id, block_id)
        select b.id, w.candidate_id, w.block_id
        from wanted w join batches b on b.trace_id = w.trace_id and b.number = w.number order by w.place
    """
    conn.execute(sa.text(write), _parameters(rubric, over, ids) | {"campaign": campaign})
    return int(campaign)


# ------------------------------------------------------------------------------------------------------ batches


@dataclass(frozen=True)
class Batch:
    """A batch that this worker holds for now."""

    id: int
    trace_id: int
    claims: int
    rubric: str
    model: str | None
    """Model asked for; None: that of the trace's job."""


@dataclass(frozen=True)
class Item:
    """A text to ask about, and where the model wrote it."""

    id: int
    type: str
    body: str
    sampled: list[int] | None
    """Ids of its tokens, where the model wrote it just so and they were kept."""
    stopped: bool
    """A stop string ended it."""
    step_id: int
    """The step that sampled it."""
    tick: int
    run: int
    ordinal: int
    request: Any
    """The step's, as the journal has it."""
    revision: int
    """Of the job's settings."""
    restarts: int
    server: str | None
    """Base URL of the model server that its trace sticks to."""
    read_tokens: int | None
    """Of the prompt that it was sampled from; None: not known."""
    cut: dict[str, Any] | None
    """What was left out of what the model read for want of room (prompts.cut); None: nothing."""
    assertions: tuple[str, ...]
    """Questions that its own assertions asked when it was executed."""


@dataclass(frozen=True)
class AnsweredItem:
    """The model's answers about an item."""

    item: int
    model: str
    server: str
    context_tokens: int | None
    """Tokens that it read before the text; None: the server takes text."""
    answers: tuple[tuple[Question, YesNo], ...]


def _later(seconds: Any) -> Any:
    return sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def claim(conn: sa.Connection, batch_id: int, worker: str, lease: float) -> Batch | None:
    """Take a batch, if it is still there to be taken and its campaign was not stopped."""
    row = conn.execute(
        sa.update(BATCHES)
        .where(BATCHES.c.id == batch_id, BATCHES.c.status.in_((BatchStatus.WAITING, BatchStatus.SENT)))
        .where(CAMPAIGNS.c.id == BATCHES.c.campaign_id, CAMPAIGNS.c.state == CampaignState.ACTIVE)
        .values(
            status=BatchStatus.RUNNING,
            claims=BATCHES.c.claims + 1,
            worker=worker,
            claimed_at=sa.func.clock_timestamp(),
            lease_until=_later(lease),
        )
        .returning(BATCHES.c.id, BATCHES.c.trace_id, BATCHES.c.claims, CAMPAIGNS.c.rubric, CAMPAIGNS.c.model)
    ).one_or_none()
    return None if row is None else Batch(*row)


def load(conn: sa.Connection, batch: Batch) -> list[Item]:
    """The items of a batch that are still to be asked about, in the order in which the model wrote them."""
    rows = conn.execute(
        sa.text(
            """
            select i.id, c.type, c.text, c.token_ids, c.depth, c.finish_reason, b.body, c.step_id,
              s.tick, s.run, s.ordinal, s.request, coalesce(k.revision, 0) as revision, t.restarts, t.server,
              p.cut, p.tokens,
              array(select distinct g.question from blocks e join grounded_labels g on g.step_id = e.executed_by
                where e.candidate_id = c.id and e.type = c.type order by 1) as assertions
            from campaign_items i join candidates c on c.id = i.candidate_id
            join steps s on s.id = c.step_id join traces t on t.id = c.trace_id
            left join blocks b on b.id = i.block_id
            left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
            left join prompts p on p.step_id = s.id
            where i.batch_id = :batch and i.failure is null
              and not exists (select from answers a where a.item_id = i.id)
            order by i.id
            """
        ).columns(token_ids=m.Numbers(sa.Integer), cut=sa.JSON, request=sa.JSON),
        {"batch": batch.id},
    )
    items = []
    for row in rows:
        as_sampled = row.body is None or row.body == row.text.strip("\n")
        items.append(
            Item(
                id=row.id,
                type=row.type,
                body=row.text if as_sampled else row.body,
                sampled=row.token_ids if as_sampled and row.depth is None else None,
                stopped=as_sampled and row.finish_reason == "stop",
                step_id=row.step_id,
                tick=row.tick,
                run=row.run,
                ordinal=row.ordinal,
                request=row.request,
                revision=row.revision,
                restarts=row.restarts,
                server=row.server,
                read_tokens=row.tokens,
                cut=row.cut,
                assertions=tuple(row.assertions),
            )
        )
    return items


def renew(conn: sa.Connection, held: Sequence[tuple[int, int]], lease: float) -> None:
    """Keep batches, given as (id, claims), for another lease."""
    ids = sa.tuple_(BATCHES.c.id, BATCHES.c.claims).in_(held)
    conn.execute(
        sa.update(BATCHES).where(ids, BATCHES.c.status == BatchStatus.RUNNING).values(lease_until=_later(lease))
    )


def finish(
    conn: sa.Connection,
    held: Batch,
    answered: Sequence[AnsweredItem],
    failures: Mapping[int, str],
    model_seconds: float | None = None,
) -> None:
    """Store what came of a batch; `failures`: reasons by item. Raises StepLost where another worker has it.

    All of it or nothing, in the caller's transaction; what its items were answered before stays.
    """
    done = conn.execute(
        sa.update(BATCHES)
        .where(*_still(held))
        .values(
            status=BatchStatus.DONE,
            lease_until=None,
            finished_at=sa.func.clock_timestamp(),
            model_seconds=sa.func.coalesce(BATCHES.c.model_seconds, 0.0) + (model_seconds or 0.0),
        )
    )
    if done.rowcount != 1:
        raise StepLost(f"batch {held.id}: another worker has it")
    rows = [
        {
            "item_id": one.item,
            "question": question.text,
            "truth": question.truth,
            "yes": answer.yes,
            "no": answer.no,
            "score": log_odds(answer),
            "model": one.model,
            "server": one.server,
        }
        for one in answered
        for question, answer in one.answers
    ]
    if rows:
        conn.execute(sa.insert(ANSWERS), rows)
    sizes = [{"of": one.item, "tokens": one.context_tokens} for one in answered]
    if sizes:
        given = sa.update(ITEMS).where(ITEMS.c.id == sa.bindparam("of"))
        conn.execute(given.values(context_tokens=sa.bindparam("tokens")), sizes)
    reasons = [{"of": item, "reason": reason[:2000]} for item, reason in failures.items()]
    if reasons:
        failed = sa.update(ITEMS).where(ITEMS.c.id == sa.bindparam("of")).values(failure=sa.bindparam("reason"))
        conn.execute(failed, reasons)


def release(conn: sa.Connection, held: Batch, reason: str, delay: float, *, counts: bool = True) -> None:
    """Give a batch back after a transient error; it is sent again in `delay` seconds at the earliest.

    One that could not even be tried does not count as a claim.
    """
    conn.execute(
        sa.update(BATCHES)
        .where(*_still(held))
        .values(
            status=BatchStatus.WAITING,
            lease_until=None,
            failure=reason,
            send_after=_later(delay),
            claims=BATCHES.c.claims - int(not counts),
        )
    )


def give_back_held(conn: sa.Connection, held: Sequence[tuple[int, int]]) -> None:
    """The worker process that held these batches, given as (id, claims), ends."""
    ids = sa.tuple_(BATCHES.c.id, BATCHES.c.claims).in_(held)
    conn.execute(
        sa.update(BATCHES)
        .where(ids, BATCHES.c.status == BatchStatus.RUNNING)
        .values(status=BatchStatus.WAITING, lease_until=None, send_after=sa.func.clock_timestamp())
    )


def _still(held: Batch) -> list[sa.ColumnElement[bool]]:
    return [BATCHES.c.id == held.id, BATCHES.c.claims == held.claims, BATCHES.c.status == BatchStatus.RUNNING]


def to_send(conn: sa.Connection, resend: float, in_flight: int = IN_FLIGHT) -> list[tuple[int, str]]:
    """Batches to send now, (id, label), the oldest campaign first; marked as sent.

    First those whose lease ran out or that nobody took for `resend` seconds are waiting again; times that lie
    further ahead than any do are void, for the database's clock was set back.
    """
    if not conn.execute(sa.select(sa.func.pg_try_advisory_xact_lock(SEND_LOCK))).scalar_one():
        return []
    now, never = sa.func.clock_timestamp(), _later(resend + LONGEST_DELAY)
    conn.execute(
        sa.update(BATCHES)
        .where(
            sa.or_(
                (BATCHES.c.status == BatchStatus.RUNNING) & ~BATCHES.c.lease_until.between(now, never),
                (BATCHES.c.status == BatchStatus.SENT) & ~BATCHES.c.send_after.between(now, never),
            ),
            BATCHES.c.status.in_((BatchStatus.SENT, BatchStatus.RUNNING)),
        )
        .values(status=BatchStatus.WAITING, lease_until=None, send_after=now)
    )
    picked = sa.text(
        """
        with free as (
          select greatest(0, :in_flight - count(*)) as n from campaign_batches where status in ('sent', 'running')
        )
        update campaign_batches b
        set status = 'sent', send_after = clock_timestamp() + make_interval(secs => :resend)
        from campaigns c
        where c.id = b.campaign_id and b.id in (
          select w.id from campaign_batches w join campaigns a on a.id = w.campaign_id and a.state = 'active'
          where w.status = 'waiting'
            and w.send_after not between clock_timestamp() and clock_timestamp() + make_interval(secs => :never)
          order by w.id limit (select n from free)
        )
        returning b.id, 'campaign ' || c.name || ' trace ' || b.trace_id as label
        """
    )
    rows = conn.execute(picked, {"in_flight": in_flight, "resend": resend, "never": resend + LONGEST_DELAY})
    return sorted((row.id, row.label) for row in rows)


# ------------------------------------------------------------------------------------------------------- people


@dataclass(frozen=True)
class CampaignRow:
    """A campaign, summed up."""

    name: str
    over: str
    state: str
    """active, stopped or done."""
    rubric_version: str
    model: str | None
    items: int
    done: int
    """Items of batches that are done, failed ones included."""
    failed: int
    answers: int
    created_at: datetime.datetime
    finished_at: datetime.datetime | None
    """None: it is not done."""


def rows(conn: sa.Connection, name: str | None = None) -> list[CampaignRow]:
    """All campaigns, newest first; or one. Raises UsageError if there is no such campaign."""
    found = conn.execute(
        sa.text(
            """
            select c.name, c.over, c.rubric_version, c.model, c.created_at, c.state,
              count(i.id) as items, count(i.id) filter (where b.status = 'done') as done,
              count(i.failure) as failed,
              (select count(*) from answers a join campaign_items x on x.id = a.item_id
                join campaign_batches y on y.id = x.batch_id where y.campaign_id = c.id) as answers,
              coalesce(bool_and(b.status = 'done'), true) as over_, max(b.finished_at) as finished_at
            from campaigns c left join campaign_batches b on b.campaign_id = c.id
            left join campaign_items i on i.batch_id = b.id
            where cast(:campaign as bigint) is null or c.id = :campaign
            group by c.id order by c.id desc
            """
        ),
        {"campaign": None if name is None else number(conn, name)},
    ).all()
    return [
        CampaignRow(
            name=row.name,
            over=row.over,
            state="done" if row.over_ else row.state,
            rubric_version=row.rubric_version,
            model=row.model,
            items=row.items,
            done=row.done,
            failed=row.failed,
            answers=row.answers,
            created_at=row.created_at,
            finished_at=row.finished_at if row.over_ else None,
        )
        for row in found
    ]


def number(conn: sa.Connection, name: str) -> int:
    """A campaign's id. Raises UsageError if there is no such campaign."""
    found = conn.execute(sa.select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.name == name)).scalar_one_or_none()
    if found is None:
        raise UsageError(f"there is no campaign {name!r}: `weavegen rescore --list` lists them")
    return int(found)


def set_state(conn: sa.Connection, name: str, state: CampaignState) -> None:
    """Stop a campaign, or let it go on. Raises UsageError if there is no such campaign."""
    campaign = number(conn, name)
    conn.execute(sa.update(CAMPAIGNS).where(CAMPAIGNS.c.id == campaign).values(state=state))


def retry(conn: sa.Connection, name: str) -> int:
    """Have the failed items of a campaign asked about once more. Returns how many. Raises UsageError as above."""
    set_state(conn, name, CampaignState.ACTIVE)
    again = conn.execute(
        sa.text(
            """
            with again as (
              update campaign_items i set failure = null
              from campaign_batches b join campaigns c on c.id = b.campaign_id
              where b.id = i.batch_id and c.name = :name and b.status = 'done' and i.failure is not null
              returning i.batch_id
            ),
            batches as (
              update campaign_batches
              set status = 'waiting', claims = 0, send_after = clock_timestamp(), finished_at = null
              where id in (select batch_id from again)
            )
            select count(*) from again
            """
        ),
        {"name": name},
    )
    return int(again.scalar_one())


# -------------------------------------------------------------------------------------------------- corrections


def save_correction(
    conn: sa.Connection,
    name: str,
    fits: "Sequence[Fit]",
    *,
    campaign: str | None,
    condition: str | None,
    version: str,
) -> None:
    """Store a correction. Raises UsageError where the name is taken: jobs may have been made with it."""
    if conn.execute(sa.select(CORRECTIONS.c.id).where(CORRECTIONS.c.name == name)).first() is not None:
        raise UsageError(f"there is a correction {name!r} already, and it is never overwritten: give another name")
    values = {"name": name, "campaign": campaign, "condition": condition, "version": version}
    id = conn.execute(sa.insert(CORRECTIONS).values(values).returning(CORRECTIONS.c.id)).scalar_one()
    conn.execute(sa.insert(CORRECTED), [{"correction_id": id, **vars(fit)} for fit in fits])


def correction(conn: sa.Connection, name: str) -> dict[str, tuple[float, float]]:
    """Slope and intercept by question, as the setting `corrections` takes them. Raises UsageError."""
    found = conn.execute(
        sa.select(CORRECTED.c.question, CORRECTED.c.slope, CORRECTED.c.intercept)
        .join(CORRECTIONS, CORRECTIONS.c.id == CORRECTED.c.correction_id)
        .where(CORRECTIONS.c.name == name)
        .order_by(CORRECTED.c.question)
    ).all()
    if not found:
        known = conn.execute(sa.select(CORRECTIONS.c.name).order_by(CORRECTIONS.c.id)).scalars().all()
        there = f"there are {', '.join(known)}" if known else "make one by `weavegen calibrate --fit NAME`"
        raise UsageError(f"there is no correction {name!r}: {there}")
    return {row.question: (row.slope, row.intercept) for row in found}
