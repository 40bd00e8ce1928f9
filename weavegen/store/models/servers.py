"""Model servers that people lend, and the ledger of served requests."""

from datetime import datetime

import sqlalchemy as sa

from weavegen.store.models.columns import column, now, table

SERVERS = table(
    "model_servers",
    "Model servers that people lend to the pool, in addition to those of OPENAI_BASE_URL.",
    column("url", str, "Base URL."),
    column("owner", str, "Who lends it."),
    column("model", str, "The model that it served when it was added."),
    now("added_at", "When it joined the pool."),
    column("removed_at", datetime | None, "When it left the pool; null: it is in the pool."),
    sa.Index("uq_model_servers_present", "url", unique=True, postgresql_where=sa.text("removed_at is null")),
)

HEALTH = table(
    "server_health",
    "What went wrong at the model servers, as the workers saw it: a row for each server and kind of error.",
    column("url", str, "Base URL of the server.", primary_key=True),
    column("kind", str, "refused, connection, timeout, busy, status, malformed or unfit.", primary_key=True),
    column("errors", int, "Requests that failed like this, probes included."),
    column("errors_since_ok", int, "Those of them since the server last answered a request of a step."),
    column("last_error", str, "The last such error, in one line."),
    column("last_error_at", datetime, "When it came."),
    column("last_ok_at", datetime | None, "When the server answered last, within ten seconds; null: not since."),
)

# Without foreign keys: they would lock a row of the trace at each request, and the ledger outlives its traces.
USAGE = table(
    "model_usage",
    "The ledger: answered requests, a row for each step and server. See pool_usage.",
    now("at", "When it was answered."),
    column("server", str, "Base URL of the server."),
    column("owner", str | None, "Who lent the server; null: it is one of OPENAI_BASE_URL."),
    column("trace_id", int, "traces.id of the trace that asked, or whose texts were asked about."),
    column("kind", str, "sample, score, execute (the evaluator in callbacks) or rescore."),
    column("requests", int, "Requests that were answered."),
    column("sequences", int, "Sequences: prompts times continuations."),
    column("prompt_tokens", int, "Prompt tokens of all sequences, as the server counts them."),
    column(
        "cached_tokens",
        int | None,
        "Prompt tokens that came from the prefix cache, as far as it is reported: for one sequence of a request "
        "with one prompt. Null: not reported.",
    ),
    column("sampled_tokens", int, "Sampled tokens."),
    column("uncounted", int, "Requests for which the server reported no tokens."),
    column("cost", float | None, "What the tokens cost, by WEAVEGEN_PRICES; null: the model has no price there."),
)
