"""What agents and people say to each other: messages in channels, and requests to the toolsmith."""

from datetime import datetime

import sqlalchemy as sa

from weavegen.store.models.columns import column, json, now, reference, table
from weavegen.store.states import RequestStatus

CHANNELS = table(
    "channels",
    "Channels in which traces and people exchange messages (weavegen chat, or Discord).",
    reference("trace_id", "Its trace."),
    column("name", str, "The trace's name for it. For a channel at Discord: its id there."),
    column("messages", int, "Number of messages and reactions in it.", server_default="0"),
    now("opened_at", "When the trace first opened it."),
    column("closed_at", datetime | None, "When the trace closed it."),
    now("look_at", "When the bridge to Discord looks at it again."),
    column("fetched", int | None, "Discord's id of the newest message that was fetched."),
    column("failure", str | None, "Why the bridge no longer looks at it; null: no failure."),
    sa.UniqueConstraint("trace_id", "name"),
    sa.Index("ix_channels_due", "look_at", postgresql_where=sa.text("failure is null")),
)

MESSAGES = table(
    "messages",
    "Messages and reactions in channels.",
    reference("channel_id", "Its channel."),
    column("number", int, "Number in its channel, from 1. The agent's id for it."),
    column("kind", str, "message or reaction."),
    column("author", str, "Who wrote it: agent, or a person's name."),
    column("own", bool, "Whether the agent wrote it."),
    column("text", str, "The text; of a reaction: the emoji."),
    column("about", int | None, "Number of the message that it answers or reacts to."),
    now("created_at", "When it was written."),
    column("sent_at", datetime | None, "When the bridge sent it to Discord."),
    column("discord_id", str | None, "Its id at Discord."),
    sa.CheckConstraint("kind in ('message', 'reaction')", name="kind"),
    sa.UniqueConstraint("channel_id", "number"),
)

EXCHANGES = table(
    "exchanges",
    "What callbacks had the worker do: with channels, and with MCP servers. A repeated step gets the same answers.",
    reference("step_id", "The step.", primary_key=True),
    column("turn", int, "Number of the exchange in its step, from 1.", primary_key=True),
    column("do", str, "open, close, send, reply, react or read; tool: a call of an MCP server."),
    json("request", "Of a call: server, tool and arguments; null: it is none.", nullable=True),
    json("answer", "The answer; null: a call was sent, and there is no answer yet.", nullable=True),
    now("created_at", "When it was done, or a call was sent."),
    sa.Index("ix_exchanges_called", "created_at", postgresql_where=sa.text("request is not null")),
)


REQUESTS = table(
    "requests",
    "Requests of users to the toolsmith (`weavegen request`).",
    column("asked_by", str, "The user."),
    column("objective", str, "The objective."),
    json("requirements", "Requirements of the result, a text each."),
    json("constraints", "Constraints on the work, a text each."),
    column("revision", int, "How often the user has changed the request.", server_default="0"),
    column(
        "status",
        RequestStatus,
        "NOT_STARTED, IN_PROGRESS, WAITING_FEEDBACK, SUCCEEDED, FAILED or CANCELED.",
        server_default="NOT_STARTED",
    ),
    column("question", str | None, "The question that it waits for an answer to; null: it does not wait."),
    column("result", str | None, "The result; null: none, or it is not over."),
    reference("trace_id", "The trace that works on it. After a retry: the newest.", ondelete="SET NULL", unique=True),
    now("created_at", "When it was made."),
    sa.CheckConstraint("(question is not null) = (status = 'WAITING_FEEDBACK')", name="question"),
    sa.Index("ix_requests_asked_by", "asked_by"),
    sa.Index(
        "ix_requests_open",
        "id",
        postgresql_where=sa.text("status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK')"),
    ),
)

CHANGES = table(
    "request_changes",
    "Every change of every request, with its reason. Rows are never changed.",
    reference("request_id", "Its request.", index=True),
    now("at", "When it happened."),
    column("what", str, "created, updated, answered or canceled by the user; status: changed by its trace."),
    column("status", RequestStatus, "The new status."),
    column("reason", str, "Reason: the user's words, the question, the result, or the failure."),
    json("changed", "New objective, requirements, constraints; null: the same.", nullable=True),
)
