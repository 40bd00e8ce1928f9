"""What agents and people say to each other."""

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
        {"comment": "Where traces exchange messages with people (weavegen chat, or Discord)."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    name: Mapped[str] = column("What the trace calls it; of one of Discord's channels the id there.")
    messages: Mapped[int] = column("Messages and reactions in it.", server_default="0")
    opened_at: Mapped[datetime.datetime] = now("When the trace opened it first.")
    closed_at: Mapped[datetime.datetime | None] = column("When the trace closed it.")
    look_at: Mapped[datetime.datetime] = now("The bridge to Discord looks at it again after this.")
    fetched: Mapped[int | None] = column("Discord's id of the newest message that was fetched from there.")
    failure: Mapped[str | None] = column("Why the bridge has given it up.")


class Message(Base):
    __tablename__ = "messages"
    __table_args__ = (
        sa.CheckConstraint("kind in ('message', 'reaction')", name="kind"),
        sa.UniqueConstraint("channel_id", "number"),
        {"comment": "What agents and people said in channels."},
    )

    id: Mapped[int] = key()
    channel_id: Mapped[int] = reference("channels.id", "Its channel.")
    number: Mapped[int] = column("Position in its channel, from 1: its id for the agent.")
    kind: Mapped[str] = column("message or reaction.")
    author: Mapped[str] = column("Who wrote it: agent, or a person's name.")
    own: Mapped[bool] = column("Whether the agent wrote it.")
    text: Mapped[str] = column("What was written; of a reaction the emoji.")
    about: Mapped[int | None] = column("Number of the message that it answers or reacts to.")
    created_at: Mapped[datetime.datetime] = now("When it was written.")
    sent_at: Mapped[datetime.datetime | None] = column("When the bridge took it to Discord.")
    discord_id: Mapped[str | None] = column("Its id at Discord.")


class Exchange(Base):
    __tablename__ = "exchanges"
    __table_args__ = {
        "comment": "What steps did with channels, and the answers: a step that is done again gets the same ones."
    }

    step_id: Mapped[int] = reference("steps.id", "The step.", primary_key=True)
    turn: Mapped[int] = column("Number of the exchange in its step, from 1.", primary_key=True)
    do: Mapped[str] = column("open, close, send, reply, react or read.")
    answer: Mapped[dict[str, Any]] = json("What it was answered by.")
    created_at: Mapped[datetime.datetime] = now("When it was done.")
