"""Messages in Postgres: what agents and people say to each other in channels.

What an agent does with a channel is an exchange. Its key is its step and its number within the step. The first
answer is stored and returned at every repetition, so a step that runs again sends nothing twice.
"""

from collections.abc import Sequence
from typing import Any

from weavegen import sql
from weavegen.box.mcp import MAYBE_DONE
from weavegen.channels.exchange import Exchange
from weavegen.database import Connection
from weavegen.errors import required


def exchange(
    conn: Connection, trace_id: int, step_id: int, wish: Exchange, patient: bool = False
) -> dict[str, Any] | None:
    """Do what a message tool asks of a channel, or return the answer of the first time. Returns a `Chat` answer.

    None, with `patient`: the tool reads, and nobody else has written a message yet.
    """
    if wish.do == "open":
        sql.run(conn, "store/open_channel", trace=trace_id, name=wish.channel)
    channel = sql.run(conn, "store/lock_channel_of_trace", trace=trace_id, name=wish.channel).scalar_one_or_none()
    before = sql.run(conn, "store/exchange", step=step_id, turn=wish.turn).one_or_none()
    if before is not None and before.do == wish.do:
        return dict(before.answer)
    if before is not None:
        return {"error": f"this was done before, and then it was a {before.do}, not a {wish.do}: nothing is sent"}
    if channel is None:
        return {"error": f"there is no channel {wish.channel!r}: open it"}
    if patient and wish.do == "read" and not _has_message(conn, channel, after=wish.after):
        return None
    answer = _perform(conn, channel, wish)
    sql.run(conn, "store/save_exchange", step=step_id, turn=wish.turn, do=wish.do, answer=answer)
    return answer


LOST = {"error": f"the answer of the MCP server was lost on the way; {MAYBE_DONE}"}


def begin_call(
    conn: Connection, step_id: int, turn: int, request: dict[str, Any], *, again: bool
) -> dict[str, Any] | None:
    """Record that a tool of an MCP server is to be called. None: call it now, once this is committed.

    Else the answer of the first time, which is LOST where a worker has called it and recorded no answer. `again`: the
    call must have been made before.
    """
    if not again and sql.run(conn, "store/begin_call", step=step_id, turn=turn, request=request).rowcount:
        return None
    sql.run(conn, "store/answer_exchange", step=step_id, turn=turn, answer=LOST)
    before = sql.run(conn, "store/exchange", step=step_id, turn=turn).one_or_none()
    if before is None or before.request != request:
        return {"error": "the code made another call when it ran first: a call is not made when code runs again"}
    return dict(before.answer)


def _perform(conn: Connection, channel: int, wish: Exchange) -> dict[str, Any]:
    """Do an exchange for the first time."""
    if wish.do in ("reply", "react") and not _has_message(conn, channel, number=wish.about):
        return {"error": f"there is no message {wish.about} in this channel"}
    match wish.do:
        case "read":
            return {"values": read(conn, channel, wish)}
        case "send" | "reply":
            return {"values": add(conn, channel, wish.text, about=wish.about or None)}
        case "react":
            add(conn, channel, wish.text, kind="reaction", about=wish.about)
        case _:
            sql.run(conn, "store/mark_channel", channel=channel, closed=wish.do == "close")
    return {"values": None}


def _has_message(conn: Connection, channel: int, *, number: int | None = None, after: int | None = None) -> bool:
    return bool(sql.run(conn, "store/has_message", channel=channel, number=number, after=after).scalar_one())


def add(
    conn: Connection,
    channel: int,
    text: str,
    *,
    author: str | None = None,
    kind: str = "message",
    about: int | None = None,
) -> int:
    """Add a message or a `reaction` to a channel; without an author it is the agent's. Returns its number there."""
    values = {"author": author or "agent", "own": author is None, "kind": kind, "about": about}
    return int(sql.run(conn, "store/add_message", channel=channel, text=text, **values).scalar_one())


def read(conn: Connection, channel: int, wish: Exchange) -> list[dict[str, Any]]:
    """The newest messages between the numbers `after` and `before`, oldest first, as the agent sees them."""
    bounds = {"after": wish.after, "before": wish.before, "limit": wish.limit}
    rows = sql.run(conn, "store/read_messages", channel=channel, **bounds)
    return [row._asdict() | {"timestamp": row.timestamp.isoformat(timespec="seconds")} for row in rows]


def end_reason(conn: Connection, trace_id: int) -> str | None:
    """Why a trace is over; None while it is not. Raises UsageError if there is no such trace."""
    missing = f"there is no trace {trace_id}: `weavegen status JOB` lists those of a job"
    reason: str | None = required(sql.run(conn, "store/end_reason", trace=trace_id).one_or_none(), missing).reason
    return reason


def channels(conn: Connection, trace_id: int) -> dict[str, int]:
    """Ids of a trace's channels by name, in the order in which they were opened."""
    return {row.name: row.id for row in sql.run(conn, "store/channels", trace=trace_id)}


def since(conn: Connection, channel: int, number: int) -> Sequence[Any]:
    """Rows (id, kind, author, own, text, about, created_at) of the messages and reactions after this number, in order.

    `id` is the number in the channel, `about` that of the message which it answers or reacts to.
    """
    return sql.run(conn, "store/messages_since", channel=channel, number=number).all()


DISCORD_NAME = "^[0-9]{15,20}$"
"""Names of channels that the bridge connects: ids of Discord's channels."""
HOLD_SECONDS = 60.0
"""A channel whose worker has been silent for this long is given to another worker."""


def hold_due(conn: Connection, limit: int = 10) -> Sequence[Any]:
    """Take the channels that the bridge should look at now: rows of due_channels.sql; look_again.sql frees them."""
    return sql.run(conn, "store/due_channels", hold=HOLD_SECONDS, name=DISCORD_NAME, limit=limit).all()


def store_received(
    conn: Connection, channel: int, discord_id: str, author: str, text: str, about: str | None = None
) -> None:
    """Store a message from Discord, unless it is stored already. One without text only counts as fetched."""
    sql.run(conn, "store/lock_channel", channel=channel)
    values = {"discord_id": discord_id, "author": author, "text": text, "about": about}
    sql.run(conn, "store/receive_message", channel=channel, **values)
