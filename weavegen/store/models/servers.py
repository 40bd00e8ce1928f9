"""Model servers that people lend, and the ledger of what all servers served."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now


class ModelServer(Base):
    __tablename__ = "model_servers"
    __table_args__ = (
        sa.Index("uq_model_servers_present", "url", unique=True, postgresql_where=sa.text("removed_at is null")),
        {"comment": "Model servers that people lend to the pool, beside those of OPENAI_BASE_URL."},
    )

    id: Mapped[int] = key()
    url: Mapped[str] = column("Base URL.")
    owner: Mapped[str] = column("Who lends it.")
    model: Mapped[str] = column("The model that it served when it was added.")
    added_at: Mapped[datetime.datetime] = now("When it joined the pool.")
    removed_at: Mapped[datetime.datetime | None] = column("When it left the pool; null: it is in it.")


class ModelUsage(Base):
    # Without references: they would lock a row of the trace with each request, and the ledger outlives what it
    # speaks of.
    __tablename__ = "model_usage"
    __table_args__ = {
        "comment": "The ledger: what model servers answered, a row for the requests of one step to one server. "
        "pool_usage sums it up."
    }

    id: Mapped[int] = key()
    at: Mapped[datetime.datetime] = now("When it was answered.")
    server: Mapped[str] = column("Base URL of the server.")
    owner: Mapped[str | None] = column("Who lent it then; null: it is one of OPENAI_BASE_URL.")
    trace_id: Mapped[int] = column("traces.id of the trace that asked, or whose texts were asked about.")
    kind: Mapped[str] = column("sample, score, execute (the evaluator in callbacks) or rescore.")
    requests: Mapped[int] = column("Requests that were answered.")
    sequences: Mapped[int] = column("Prompts times continuations.")
    prompt_tokens: Mapped[int] = column("Prompt tokens of all sequences, as the server's own counters have them.")
    cached_tokens: Mapped[int | None] = column(
        "Of these, those from the prefix cache, told for one sequence of a request with one prompt; "
        "null: nothing was told."
    )
    sampled_tokens: Mapped[int] = column("Sampled tokens.")
    uncounted: Mapped[int] = column("Requests whose tokens the server did not tell: they are in no sum of tokens.")
