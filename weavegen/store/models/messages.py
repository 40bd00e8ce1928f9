"""Messages between agents and people."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, json, key, now, reference


class Channel(Base):
    __tablename__ = "channels"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "name"),
        sa.Index("ix_channels_due", "look_at", postgresql_where=sa.text("failure is null")),
        {"comment": "Channels in which traces and people exchange messages (weavegen chat, or Discord)."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    name: Mapped[str] = column("The trace's name for it. For a channel at Discord: its id there.")
    messages: Mapped[int] = column("Number of messages and reactions in it.", server_default="0")
    opened_at: Mapped[datetime.datetime] = now("When the trace first opened it.")
    closed_at: Mapped[datetime.datetime | None] = column("When the trace closed it.")
    look_at: Mapped[datetime.datetime] = now("When the bridge to Discord looks at it again.")
    fetched: Mapped[int | None] = column("Discord's id of the newest message that was fetched.")
    failure: Mapped[str | None] = column("Why the bridge no longer looks at it; null: no failure.")


class Message(Base):
    __tablename__ = "messages"
    __table_args__ = (
        sa.CheckConstraint("kind in ('message', 'reaction')", name="kind"),
        sa.UniqueConstraint("channel_id", "number"),
        {"comment": "Messages and reactions in channels."},
    )

    id: Mapped[int] = key()
    channel_id: Mapped[int] = reference("channels.id", "Its channel.")
    number: Mapped[int] = column("Number in its channel, from 1. The agent's id for it.")
    kind: Mapped[str] = column("message or reaction.")
    author: Mapped[str] = column("Who wrote it: agent, or a person's name.")
    own: Mapped[bool] = column("Whether the agent wrote it.")
    text: Mapped[str] = column("The text; of a reaction: the emoji.")
    about: Mapped[int | None] = column("Number of the message that it answers or reacts to.")
    created_at: Mapped[datetime.datetime] = now("When it was written.")
    sent_at: Mapped[datetime.datetime | None] = column("When the bridge sent it to Discord.")
    discord_id: Mapped[str | None] = column("Its id at Discord.")


class Exchange(Base):
    __tablename__ = "exchanges"
    __table_args__ = {"comment": "What steps did with channels. A repeated step gets the same answers."}

    step_id: Mapped[int] = reference("steps.id", "The step.", primary_key=True)
    turn: Mapped[int] = column("Number of the exchange in its step, from 1.", primary_key=True)
    do: Mapped[str] = column("open, close, send, reply, react or read.")
    answer: Mapped[dict[str, Any]] = json("The answer.")
    created_at: Mapped[datetime.datetime] = now("When it was done.")
