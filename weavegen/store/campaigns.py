"""Campaigns in Postgres: items in batches that workers claim with a lease, and corrections of the evaluator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError, required
from weavegen.kernel.rubric import Question, Rubric
from weavegen.kernel.selection import log_odds
from weavegen.kernel.steps import YesNo
from weavegen.store.leases import MAX_DELAY_SECONDS, Held, LeaseTable
from weavegen.store.states import BatchStatus, CampaignState
from weavegen.trace.blocks import BlockType

BATCH_SIZE = 64
"""Texts of one trace that a worker asks about before it stores the answers: as many as a round samples."""
MAX_IN_FLIGHT = 32
"""Maximum batches of all campaigns that are sent or running at a time: the traces use the same queue."""
SEND_LOCK = 0x77656273
"""Advisory lock under which batches are chosen to be sent, so that MAX_IN_FLIGHT holds."""
MAX_REASON_CHARS = 2000
LEASES = LeaseTable("campaign_batches", "batch", BatchStatus.WAITING)


def preview(conn: Connection, rubric: Rubric, over: str, ids: Sequence[int]) -> Any:
    """What a campaign about these blocks or candidates would ask, a row of preview_campaign.sql. Writes nothing."""
    numbers = {"all_types": list(map(str, BlockType)), "numbers": [len(rubric.about(type)) for type in BlockType]}
    return sql.run(conn, "store/preview_campaign", **_parameters(rubric, over, ids), **numbers).one()


def create(conn: Connection, name: str, rubric: Rubric, over: str, ids: Sequence[int], **values: Any) -> int:
    """Write a campaign about these blocks or candidates. Returns its id. Raises UsageError if the name is taken.

    `values`: the columns condition, model and version of the table campaigns.
    """
    if sql.run(conn, "store/campaign_id", name=name).first() is not None:
        raise UsageError(
            f"there is a campaign {name!r} already, and answers are never overwritten: give another --name, "
            f"or continue it with --resume {name}"
        )
    values |= {"name": name, "over": over, "rubric": rubric.text, "rubric_version": rubric.version}
    campaign = int(sql.run(conn, "store/insert_campaign", **values).scalar_one())
    sql.run(conn, "store/insert_campaign_batches", **_parameters(rubric, over, ids), campaign=campaign)
    return campaign


def _parameters(rubric: Rubric, over: str, ids: Sequence[int]) -> dict[str, Any]:
    return {
        "over": over, "ids": ids, "types": [str(type) for type in rubric.types],
        "assertions": rubric.assertions, "size": BATCH_SIZE,
    }  # fmt: skip


@dataclass(frozen=True)
class AnsweredItem:
    """The model's answers about an item."""

    item: int
    model: str
    server: str
    context_tokens: int | None
    """Tokens that the model read before the text; None: the server takes text."""
    answers: tuple[tuple[Question, YesNo], ...]


def claim(conn: Connection, batch_id: int, worker: str, lease: float) -> Any:
    """Claim a batch. None: another worker has it, it is done, or its campaign was stopped.

    Returns a row (id, trace_id, claims, rubric, model). `model` None: that of the trace's job.
    """
    return sql.run(conn, "store/claim_batch", batch=batch_id, worker=worker, lease=lease).one_or_none()


def finish(
    conn: Connection,
    held: Held,
    answered: Sequence[AnsweredItem],
    failures: Mapping[int, str],
    model_seconds: float | None = None,
) -> None:
    """Store the results of a batch; `failures`: reasons by item. Raises StepLost where another worker has it.

    Earlier answers about its items stay. The caller's transaction stores all or nothing.
    """
    LEASES.finish(conn, held, "store/finish_batch", seconds=model_seconds or 0.0)
    rows = [
        {
            "item": about.item,
            "question": question.text,
            "truth": question.truth,
            "score": log_odds(answer),
            "yes": answer.yes,
            "no": answer.no,
            "model": about.model,
            "server": about.server,
        }
        for about in answered
        for question, answer in about.answers
    ]
    sql.run_each(conn, "store/save_answer", rows)
    sizes = [{"item": about.item, "tokens": about.context_tokens} for about in answered]
    sql.run_each(conn, "store/set_context_tokens", sizes)
    reasons = [{"item": id, "reason": reason[:MAX_REASON_CHARS]} for id, reason in failures.items()]
    sql.run_each(conn, "store/set_item_failure", reasons)


def batches_to_send(conn: Connection, resend: float, in_flight: int = MAX_IN_FLIGHT) -> list[tuple[int, str]]:
    """Batches to send now as (id, label), those of the oldest campaign first. They are marked as sent.

    Overdue batches are set back to waiting first.
    """
    if not sql.run(conn, "store/try_advisory_lock", key=SEND_LOCK).scalar_one():
        return []
    never = resend + MAX_DELAY_SECONDS
    sql.run(conn, "store/overdue_batches", never=never)
    sent = sql.run(conn, "store/send_campaign_batches", in_flight=in_flight, resend=resend, never=never)
    return sorted((row.id, row.label) for row in sent)


def rows(conn: Connection, name: str | None = None) -> Sequence[Any]:
    """Rows of campaigns.sql: all campaigns, newest first; or one. Raises UsageError if there is no such campaign."""
    campaign = None if name is None else campaign_id(conn, name)
    return sql.run(conn, "store/campaigns", campaign=campaign).all()


def campaign_id(conn: Connection, name: str) -> int:
    """A campaign's id. Raises UsageError if there is no such campaign."""
    id = sql.run(conn, "store/campaign_id", name=name).scalar_one_or_none()
    return int(required(id, f"there is no campaign {name!r}: `weavegen rescore --list` lists them"))


def set_state(conn: Connection, name: str, state: CampaignState) -> None:
    """Stop or resume a campaign. Raises UsageError if there is no such campaign."""
    sql.run(conn, "store/set_campaign_state", campaign=campaign_id(conn, name), state=state)


def retry(conn: Connection, name: str) -> int:
    """Ask again about the failed items of a campaign. Returns how many. Raises UsageError if it does not exist."""
    set_state(conn, name, CampaignState.ACTIVE)
    return int(sql.run(conn, "store/retry_campaign", name=name).scalar_one())


def save_correction(conn: Connection, name: str, fits: Sequence[Mapping[str, Any]], **values: Any) -> None:
    """Store a correction. Raises UsageError if the name is taken.

    `fits`: rows of corrected_questions. `values`: the columns campaign, condition and version of the table corrections.
    """
    id = required(
        sql.run(conn, "store/insert_correction", name=name, **values).scalar_one_or_none(),
        f"there is a correction {name!r} already, and it is never overwritten: give another name",
    )
    sql.run_each(conn, "store/save_corrected_question", [{"correction": id, **fit} for fit in fits])


def correction(conn: Connection, name: str) -> dict[str, tuple[float, float]]:
    """Slope and intercept by question, as the setting `corrections` takes them. Raises UsageError."""
    rows = sql.run(conn, "store/correction", name=name).all()
    if not rows:
        known = sql.run(conn, "store/corrections").scalars()
        advice = f"there are {', '.join(known)}" if known else "make one with `weavegen calibrate --fit NAME`"
        raise UsageError(f"there is no correction {name!r}: {advice}")
    return {row.question: (row.slope, row.intercept) for row in rows}
