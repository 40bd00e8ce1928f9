"""Messages in Postgres: what agents and people say to each other in channels.

An agent's message, or a reading, is an exchange: it has a key, its step and its number within the step. The first
answer to it is kept, and is the answer to every repetition, so nothing is said twice by a step that is done again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.channels.exchange import Exchange
from weavegen.errors import UsageError
from weavegen.store import models as m
from weavegen.store.models import TraceStatus
from weavegen.store.traces import OVER

CHANNELS, MESSAGES, EXCHANGES, TRACES = map(m.table, (m.Channel, m.Message, m.Exchange, m.Trace))


def exchange(
    conn: sa.Connection, trace_id: int, step_id: int, wish: Exchange, patient: bool = False
) -> dict[str, Any] | None:
    """Do what a tool wants of a channel, or give the answer that it got before: a `channels.Chat` answer.

    None, where `patient`: it waits for somebody else's message, and there is none.
    """
    if wish.do == "open":
        conn.execute(insert(CHANNELS).values(trace_id=trace_id, name=wish.channel).on_conflict_do_nothing())
    # The lock makes two workers that hold the same step come one after the other.
    here = (CHANNELS.c.trace_id == trace_id, CHANNELS.c.name == wish.channel)
    channel = conn.execute(sa.select(CHANNELS.c.id).where(*here).with_for_update()).scalar_one_or_none()
    key = (EXCHANGES.c.step_id == step_id, EXCHANGES.c.turn == wish.turn)
    before = conn.execute(sa.select(EXCHANGES.c.do, EXCHANGES.c.answer).where(*key)).one_or_none()
    if before is not None and before.do == wish.do:
        return dict(before.answer)
    if before is not None:
        return {"error": f"this was done before, and then it was a {before.do}, not a {wish.do}: nothing is sent"}
    if channel is None:
        return {"error": f"there is no channel {wish.channel!r}: open it"}
    if patient and wish.do == "read" and not spoken_to(conn, channel, wish.after):
        return None
    answer = new_answer(conn, channel, wish)
    conn.execute(sa.insert(EXCHANGES).values(step_id=step_id, turn=wish.turn, do=wish.do, answer=answer))
    return answer


def new_answer(conn: sa.Connection, channel: int, wish: Exchange) -> dict[str, Any]:
    """Do it for the first time."""
    if wish.do in ("reply", "react") and not is_message(conn, channel, wish.about):
        return {"error": f"there is no message {wish.about} in this channel"}
    match wish.do:
        case "read":
            return {"values": read(conn, channel, wish.after, wish.limit)}
        case "send" | "reply":
            return {"values": add(conn, channel, wish.text, about=wish.about or None)}
        case "react":
            add(conn, channel, wish.text, kind="reaction", about=wish.about)
        case _:
            closed = sa.func.clock_timestamp() if wish.do == "close" else None
            conn.execute(sa.update(CHANNELS).where(CHANNELS.c.id == channel).values(closed_at=closed))
    return {"values": None}


def add(
    conn: sa.Connection,
    channel: int,
    text: str,
    *,
    author: str | None = None,
    kind: str = "message",
    about: int | None = None,
    discord_id: str | None = None,
) -> int:
    """Put something into a channel; without an author it is the agent's. Returns its number there."""
    count = sa.update(CHANNELS).where(CHANNELS.c.id == channel).values(messages=CHANNELS.c.messages + 1)
    number = int(conn.execute(count.returning(CHANNELS.c.messages)).scalar_one())
    conn.execute(
        sa.insert(MESSAGES).values(
            channel_id=channel,
            number=number,
            kind=kind,
            author=author or "agent",
            own=author is None,
            text=text,
            about=about,
            discord_id=discord_id,
        )
    )
    return number


def is_message(conn: sa.Connection, channel: int, number: int) -> bool:
    where = (MESSAGES.c.channel_id == channel, MESSAGES.c.number == number, MESSAGES.c.kind == "message")
    return bool(conn.execute(sa.select(sa.exists().where(*where))).scalar_one())


def spoken_to(conn: sa.Connection, channel: int, after: int) -> bool:
    """Whether somebody else than the agent has written after this message."""
    where = (MESSAGES.c.channel_id == channel, MESSAGES.c.number > after, MESSAGES.c.kind == "message")
    return bool(conn.execute(sa.select(sa.exists().where(*where, ~MESSAGES.c.own))).scalar_one())


def read(conn: sa.Connection, channel: int, after: int, limit: int) -> list[dict[str, Any]]:
    """The newest messages after this one, oldest first, as the agent sees them."""
    mine = MESSAGES.c.channel_id == channel
    newest = (
        sa.select(MESSAGES)
        .where(mine, MESSAGES.c.kind == "message", MESSAGES.c.number > after)
        .order_by(MESSAGES.c.number.desc())
        .limit(limit)
    )
    rows = conn.execute(newest).all()[::-1]
    numbers = [row.number for row in rows]
    reactions = sa.select(MESSAGES.c.about, MESSAGES.c.text).where(
        mine, MESSAGES.c.kind == "reaction", MESSAGES.c.about.in_(numbers)
    )
    reacted = conn.execute(reactions.order_by(MESSAGES.c.number)).all()
    return [
        {
            "id": row.number,
            "author": row.author,
            "own": row.own,
            "content": row.text,
            "timestamp": row.created_at.isoformat(timespec="seconds"),
            "reply_to": row.about,
            "reactions": [one.text for one in reacted if one.about == row.number],
        }
        for row in rows
    ]


# ------------------------------------------------------------------------------- for people in a terminal


@dataclass(frozen=True)
class Said:
    """A message or a reaction."""

    id: int
    """Its number in the channel."""
    kind: str
    author: str
    own: bool
    """Whether the agent wrote it."""
    text: str
    about: int | None
    """The message that it answers or reacts to."""
    created_at: datetime


def over(conn: sa.Connection, trace_id: int) -> str | None:
    """Why a trace is over; None while it is not. Raises UsageError if there is no such trace."""
    columns = (TRACES.c.status, TRACES.c.ended_because, TRACES.c.failure)
    row = conn.execute(sa.select(*columns).where(TRACES.c.id == trace_id)).one_or_none()
    if row is None:
        raise UsageError(f"there is no trace {trace_id}: `weavegen status JOB` lists those of a job")
    return None if row.status not in OVER else row.failure or row.ended_because or str(row.status)


def channels(conn: sa.Connection, trace_id: int) -> dict[str, int]:
    """Ids of a trace's channels by name, in the order in which they were opened."""
    query = sa.select(CHANNELS.c.name, CHANNELS.c.id).where(CHANNELS.c.trace_id == trace_id)
    return {row.name: row.id for row in conn.execute(query.order_by(CHANNELS.c.id))}


def since(conn: sa.Connection, channel: int, number: int) -> Sequence[Said]:
    """All that was said after this number."""
    columns = [MESSAGES.c.number, *(MESSAGES.c[name] for name in Said.__dataclass_fields__ if name != "id")]
    where = (MESSAGES.c.channel_id == channel, MESSAGES.c.number > number)
    return [Said(*row) for row in conn.execute(sa.select(*columns).where(*where).order_by(MESSAGES.c.number))]


# ------------------------------------------------------------------------------- for the bridge to Discord


@dataclass(frozen=True)
class Bridged:
    """An open channel that is one of Discord's, held by one worker for a while."""

    id: int
    trace_id: int
    name: str
    """Its id at Discord."""
    after: int
    """Messages up to this Discord id have been fetched."""


EPOCH = 1_420_070_400_000
"""Where the time in Discord's ids begins, in milliseconds."""
HELD = 60.0
"""Seconds after which a channel whose worker fell silent is given to another."""


def hold(conn: sa.Connection, limit: int = 10) -> list[Bridged]:
    """Take the channels that the bridge should look at now. `rest` gives them back.

    A trace's last words are taken along when it is over.
    """
    live = (CHANNELS.c.closed_at.is_(None), TRACES.c.status == TraceStatus.RUNNING)
    mine = (MESSAGES.c.channel_id == CHANNELS.c.id, MESSAGES.c.own, MESSAGES.c.sent_at.is_(None))
    unsent = sa.exists().where(*mine)
    due = (
        sa.select(CHANNELS.c.id)
        .join(TRACES, TRACES.c.id == CHANNELS.c.trace_id)
        .where(CHANNELS.c.look_at < sa.func.clock_timestamp(), CHANNELS.c.failure.is_(None))
        .where(CHANNELS.c.name.regexp_match(DISCORD), sa.or_(sa.and_(*live), unsent))
        .order_by(CHANNELS.c.look_at)
        .limit(limit)
        .with_for_update(skip_locked=True, of=CHANNELS)
    )
    rows = conn.execute(
        sa.update(CHANNELS)
        .where(CHANNELS.c.id.in_(due))
        .values(look_at=_in(HELD))
        .returning(CHANNELS.c.id, CHANNELS.c.trace_id, CHANNELS.c.name, CHANNELS.c.fetched, CHANNELS.c.opened_at)
    )
    # Discord's ids begin with the time: what was written before the channel was opened is none of our business.
    return [Bridged(row.id, row.trace_id, row.name, row.fetched or discord_time(row.opened_at)) for row in rows]


def discord_time(when: datetime) -> int:
    """The first id that Discord could give in this millisecond."""
    return (int(when.timestamp() * 1000) - EPOCH) << 22


DISCORD = "^[0-9]{15,20}$"
"""Names of channels that are Discord's."""


def rest(conn: sa.Connection, channel: int, seconds: float, failure: str | None = None) -> None:
    """Look at a channel again in so many seconds; with a failure, never."""
    values = {"look_at": _in(seconds), "failure": failure}
    conn.execute(sa.update(CHANNELS).where(CHANNELS.c.id == channel).values(values))


def rest_all(conn: sa.Connection, seconds: float) -> None:
    """Look for so many seconds at no channel that nobody holds."""
    conn.execute(sa.update(CHANNELS).where(CHANNELS.c.look_at < _in(seconds)).values(look_at=_in(seconds)))


def _in(seconds: float) -> Any:
    return sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


@dataclass(frozen=True)
class Outgoing:
    """What the agent has said and Discord does not know yet."""

    id: int
    kind: str
    text: str
    about: str | None
    """Discord's id of the message that it answers or reacts to, if that is known there."""


def outgoing(conn: sa.Connection, channel: int) -> Outgoing | None:
    """The next one."""
    other = MESSAGES.alias("other")
    query = (
        sa.select(MESSAGES.c.id, MESSAGES.c.kind, MESSAGES.c.text, other.c.discord_id)
        .outerjoin(other, (other.c.channel_id == MESSAGES.c.channel_id) & (other.c.number == MESSAGES.c.about))
        .where(MESSAGES.c.channel_id == channel, MESSAGES.c.own, MESSAGES.c.sent_at.is_(None))
        .order_by(MESSAGES.c.number)
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else Outgoing(*row)


def sent(conn: sa.Connection, message: int, discord_id: str | None) -> None:
    """It is at Discord now; or never will be, where it has no id and is no reaction."""
    values = {"sent_at": sa.func.clock_timestamp(), "discord_id": discord_id}
    conn.execute(sa.update(MESSAGES).where(MESSAGES.c.id == message).values(values))


def received(
    conn: sa.Connection, channel: int, discord_id: str, author: str, text: str, about: str | None = None
) -> None:
    """Put a message from Discord into its channel, unless it is there; or only note that it was fetched."""
    mine = MESSAGES.c.channel_id == channel
    conn.execute(sa.select(CHANNELS.c.id).where(CHANNELS.c.id == channel).with_for_update())
    known = conn.execute(sa.select(sa.exists().where(mine, MESSAGES.c.discord_id == discord_id))).scalar_one()
    if text and not known:
        query = sa.select(MESSAGES.c.number).where(mine, MESSAGES.c.discord_id == about)
        number = conn.execute(query).scalar_one_or_none() if about else None
        add(conn, channel, text, author=author, about=number, discord_id=discord_id)
    conn.execute(sa.update(CHANNELS).where(CHANNELS.c.id == channel).values(fetched=int(discord_id)))
