"""Model servers that people lend, and the ledger of served requests."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now


class ModelServer(Base):
    __tablename__ = "model_servers"
    __table_args__ = (
        sa.Index("uq_model_servers_present", "url", unique=True, postgresql_where=sa.text("removed_at is null")),
        {"comment": "Model servers that people lend to the pool, in addition to those of OPENAI_BASE_URL."},
    )

    id: Mapped[int] = key()
    url: Mapped[str] = column("Base URL.")
    owner: Mapped[str] = column("Who lends it.")
    model: Mapped[str] = column("The model that it served when it was added.")
    added_at: Mapped[datetime.datetime] = now("When it joined the pool.")
    removed_at: Mapped[datetime.datetime | None] = column("When it left the pool; null: it is in the pool.")


class ModelUsage(Base):
    # Without foreign keys: they would lock a row of the trace at each request, and the ledger outlives its traces.
    __tablename__ = "model_usage"
    __table_args__ = {"comment": "The ledger: answered requests, a row for each step and server. See pool_usage."}

    id: Mapped[int] = key()
    at: Mapped[datetime.datetime] = now("When it was answered.")
    server: Mapped[str] = column("Base URL of the server.")
    owner: Mapped[str | None] = column("Who lent the server; null: it is one of OPENAI_BASE_URL.")
    trace_id: Mapped[int] = column("traces.id of the trace that asked, or whose texts were asked about.")
    kind: Mapped[str] = column("sample, score, execute (the evaluator in callbacks) or rescore.")
    requests: Mapped[int] = column("Requests that were answered.")
    sequences: Mapped[int] = column("Sequences: prompts times continuations.")
    prompt_tokens: Mapped[int] = column("Prompt tokens of all sequences, as the server counts them.")
    cached_tokens: Mapped[int | None] = column(
        "Prompt tokens that came from the prefix cache, as far as it is reported: for one sequence of a request "
        "with one prompt. Null: not reported."
    )
    sampled_tokens: Mapped[int] = column("Sampled tokens.")
    uncounted: Mapped[int] = column("Requests for which the server reported no tokens.")
