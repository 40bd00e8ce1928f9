"""The first schema: jobs, traces, the journal, blocks and candidates, retrieval; a role that reads them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | Sequence[str] | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


READER = """
do $$
begin
  if not exists (select from pg_roles where rolname = 'weavegen_reader') then
    create role weavegen_reader nologin;
  end if;
  execute format('grant weavegen_reader to %I', current_user);
  execute format('grant usage on schema %I to weavegen_reader', current_schema());
  execute format('grant select on all tables in schema %I to weavegen_reader', current_schema());
  execute format('alter default privileges in schema %I grant select on tables to weavegen_reader', current_schema());
exception
  when insufficient_privilege then
    raise notice 'weavegen_reader could not be set up: have a superuser create it and grant it select';
  when duplicate_object or unique_violation then
    null;  -- another database of this server made it at the same moment
end
$$
"""
"""The role of `weavegen sql`. Roles belong to the server, so a migration of another database may have created it."""

CONFINE = """
do $$
declare
  one regprocedure;
begin
  if not (select rolsuper from pg_roles where rolname = current_user) then return; end if;
  for one in
    select oid::regprocedure from pg_proc where pronamespace = 'pg_catalog'::regnamespace and (
      proname like 'pg\\_%advisory%' or proname like 'lo\\_%' or proname in ('lowrite', 'loread')
      or proname in ('pg_notify', 'pg_logical_emit_message')
    )
  loop
    execute format('revoke execute on routine %s from public', one);
  end loop;
  revoke usage on language plpgsql from public;
  execute format('revoke temporary on database %I from public', current_database());
end
$$
"""
"""Rights of every role that the reader must not have: advisory locks, large objects, temporary tables, code."""


def upgrade() -> None:
    op.create_table(
        "bootstraps",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("sha256", sa.Text(), nullable=False, comment="Hash of the source, hexadecimal."),
        sa.Column("name", sa.Text(), nullable=False, comment="File name under which it was first enqueued."),
        sa.Column("source", sa.Text(), nullable=False, comment="The file's text."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first enqueued.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bootstraps")),
        sa.UniqueConstraint("sha256", name=op.f("uq_bootstraps_sha256")),
        comment="Bootstrap files by content: the hand-written first tick of a trace.",
    )
    op.create_table(
        "examples",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("sha256", sa.Text(), nullable=False, comment="Hash of type and body, hexadecimal."),
        sa.Column("type", sa.Text(), nullable=False, comment="Type of the block."),
        sa.Column("description", sa.Text(), nullable=False, comment="What it is an example of."),
        sa.Column("question", sa.Text(), nullable=False, comment="The question that it answers well."),
        sa.Column("score", sa.Double(), nullable=False, comment="How well: log odds of yes."),
        sa.Column("body", sa.Text(), nullable=False, comment="The block's body."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was loaded first.",
        ),
        sa.CheckConstraint(
            "type in ('genesis', 'bootstrap', 'task-reminder', 'observation', 'orientation', 'action', 'error', 'debug', 'backtrack', 'expectation', 'option', 'observation-inference', 'evaluation', 'outcome', 'return')",
            name=op.f("ck_examples_type"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_examples")),
        sa.UniqueConstraint("sha256", name=op.f("uq_examples_sha256")),
        comment="Good blocks that retrieval is seeded with (weavegen examples load).",
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column(
            "name", sa.Text(), nullable=False, comment="What the user called it; the bootstrap's name by default."
        ),
        sa.Column("agent", sa.Text(), nullable=False, comment="The program that writes the traces: weave, ..."),
        sa.Column(
            "model", sa.Text(), nullable=True, comment="Model asked for; null: the only one that the server has."
        ),
        sa.Column(
            "seed",
            sa.BigInteger(),
            nullable=False,
            comment="Seed of the job, from which every trace's seed is derived.",
        ),
        sa.Column(
            "settings",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="The numbers of weavegen/settings.py that differ from the defaults.",
        ),
        sa.Column("version", sa.Text(), nullable=False, comment="Version of weavegen that enqueued it."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was enqueued.",
        ),
        sa.Column("state", sa.Text(), server_default="active", nullable=False, comment="active, paused or draining."),
        sa.Column(
            "paused_at", sa.DateTime(timezone=True), nullable=True, comment="Since when it is paused; null: it is not."
        ),
        sa.Column(
            "paused_seconds",
            sa.Double(),
            server_default="0",
            nullable=False,
            comment="For how long it was paused, in all its pauses.",
        ),
        sa.Column(
            "revision",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Newest revision of its settings; 0: as it was enqueued.",
        ),
        sa.CheckConstraint("state in ('active', 'paused', 'draining')", name=op.f("ck_jobs_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        comment="What a user enqueued in one go: traces that share a model and settings.",
    )
    op.create_table(
        "job_settings",
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Its job."),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False, comment="From 1."),
        sa.Column(
            "settings",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="All that differ from the defaults, as in jobs.settings.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was given.",
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_settings_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "revision", name=op.f("pk_job_settings")),
        comment="What `weavegen retune` made of a job's settings, all revisions but the first.",
    )
    op.create_table(
        "traces",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Its job."),
        sa.Column("number", sa.BigInteger(), nullable=False, comment="Position in its job, from 1."),
        sa.Column("bootstrap_id", sa.BigInteger(), nullable=False, comment="Its bootstrap file."),
        sa.Column(
            "params",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="What the bootstrap reads as args.params.",
        ),
        sa.Column(
            "seed", sa.BigInteger(), nullable=False, comment="All that is random in the trace derives from this."
        ),
        sa.Column(
            "status",
            sa.Text(),
            server_default="queued",
            nullable=False,
            comment="queued, running, ended, failed or cancelled.",
        ),
        sa.Column(
            "ended_because",
            sa.Text(),
            nullable=True,
            comment="returned, or the budget that was spent: ticks, blocks, bytes, time, ...",
        ),
        sa.Column(
            "failure_kind", sa.Text(), nullable=True, comment="model, environment, bootstrap or bug, where it failed."
        ),
        sa.Column("failure", sa.Text(), nullable=True, comment="Why it failed, in one line."),
        sa.Column(
            "returned",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What the agent returned to its caller, with its task's evaluations.",
        ),
        sa.Column(
            "ticks",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Ticks finished, the bootstrap's not counted.",
        ),
        sa.Column("blocks", sa.BigInteger(), server_default="0", nullable=False, comment="Blocks recorded."),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False, comment="Bytes of rendered trace."),
        sa.Column(
            "server",
            sa.Text(),
            nullable=True,
            comment="Base URL of the model server that it sticks to; null before it asks one.",
        ),
        sa.Column(
            "sampled_tokens",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Tokens sampled from the model, losers included.",
        ),
        sa.Column(
            "candidates",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Candidates sampled for blocks, losers included.",
        ),
        sa.Column(
            "written",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Blocks recorded that were made of a candidate.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was enqueued.",
        ),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), nullable=True, comment="When its first step was made ready."
        ),
        sa.Column(
            "finished_at", sa.DateTime(timezone=True), nullable=True, comment="When it ended, failed or was cancelled."
        ),
        sa.Column(
            "restarts",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Ticks that were started over; blocks change with these alone.",
        ),
        sa.Column(
            "retry_of",
            sa.BigInteger(),
            nullable=True,
            comment="The trace that it does over, which failed or was cancelled.",
        ),
        sa.CheckConstraint(
            "status in ('queued', 'running', 'ended', 'failed', 'cancelled')", name=op.f("ck_traces_status")
        ),
        sa.ForeignKeyConstraint(
            ["bootstrap_id"], ["bootstraps.id"], name=op.f("fk_traces_bootstrap_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_traces_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["retry_of"], ["traces.id"], name=op.f("fk_traces_retry_of"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_traces")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_traces_job_id_number")),
        comment="One run of an agent: one long Python file, block by block.",
    )
    op.create_index(op.f("ix_traces_bootstrap_id"), "traces", ["bootstrap_id"], unique=False)
    op.create_index(
        "ix_traces_queued", "traces", ["job_id", "id"], unique=False, postgresql_where=sa.text("status = 'queued'")
    )
    op.create_index(
        "ix_traces_retry_of", "traces", ["retry_of"], unique=False, postgresql_where=sa.text("retry_of is not null")
    )
    op.create_index(
        "ix_traces_running", "traces", ["id", "job_id"], unique=False, postgresql_where=sa.text("status = 'running'")
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column(
            "host", sa.Text(), nullable=False, comment="Host that it runs on; its steps go to the queue execute.<host>."
        ),
        sa.Column("pid", sa.BigInteger(), nullable=False, comment="Process on that host."),
        sa.Column("sandbox", sa.Text(), nullable=False, comment="How it is isolated: bubblewrap or none."),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was started.",
        ),
        sa.Column(
            "closed_at", sa.DateTime(timezone=True), nullable=True, comment="When it was stopped, or found dead."
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_environments_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        comment="The live Python processes in which traces run their code.",
    )
    op.create_index(
        "ix_environments_open", "environments", ["host"], unique=False, postgresql_where=sa.text("closed_at is null")
    )
    op.create_index(op.f("ix_environments_trace_id"), "environments", ["trace_id"], unique=False)
    op.create_index(
        "uq_environments_open", "environments", ["trace_id"], unique=True, postgresql_where=sa.text("closed_at is null")
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False, comment="When."),
        sa.Column("kind", sa.Text(), nullable=False, comment="started, ended, failed, cancelled, tick restarted, ..."),
        sa.Column("detail", sa.Text(), nullable=True, comment="More, in one line."),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_events_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        comment="The history of a trace, for people: what happened to it besides its blocks.",
    )
    op.create_index(op.f("ix_events_trace_id"), "events", ["trace_id"], unique=False)
    op.create_table(
        "steps",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("tick", sa.BigInteger(), nullable=False, comment="Number of its tick."),
        sa.Column("run", sa.BigInteger(), nullable=False, comment="Which run of the tick, see ticks.run."),
        sa.Column("ordinal", sa.BigInteger(), nullable=False, comment="Position within the tick, from 0."),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="sample, lint, score, retrieve, execute or work (the ticks of a subagent).",
        ),
        sa.Column(
            "label",
            sa.Text(),
            nullable=False,
            comment="What for, as Flower shows it: block type, round, number of candidates.",
        ),
        sa.Column(
            "status", sa.Text(), server_default="ready", nullable=False, comment="ready, running, done, failed or void."
        ),
        sa.Column(
            "request",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="What was asked for (weavegen/steps.py).",
        ),
        sa.Column(
            "result",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What came of it; emptied when the tick is over, as the other tables hold it.",
        ),
        sa.Column(
            "failure_kind", sa.Text(), nullable=True, comment="model or environment, where it can't be done at all."
        ),
        sa.Column(
            "failure",
            sa.Text(),
            nullable=True,
            comment="Why not; also the last transient error of a step that is tried again.",
        ),
        sa.Column("queue", sa.Text(), nullable=False, comment="Celery queue that it is sent to."),
        sa.Column(
            "claims",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="How often a worker took it; the fence against workers that lost it.",
        ),
        sa.Column("worker", sa.Text(), nullable=True, comment="Who took it last."),
        sa.Column(
            "lease_until",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="After this it is given to another worker.",
        ),
        sa.Column(
            "ready_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was asked for.",
        ),
        sa.Column(
            "send_after",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="The sweeper sends it again after this, if nobody took it.",
        ),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True, comment="When it was taken last."),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True, comment="When its result was stored."),
        sa.Column("model_seconds", sa.Double(), nullable=True, comment="Time spent waiting for the model server."),
        sa.Column("environment_seconds", sa.Double(), nullable=True, comment="Time spent waiting for the environment."),
        sa.Column(
            "working_seconds",
            sa.Double(),
            nullable=True,
            comment="Time from claim to commit, model and environment included.",
        ),
        sa.CheckConstraint("status in ('ready', 'running', 'done', 'failed', 'void')", name=op.f("ck_steps_status")),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_steps_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("trace_id", "tick", "run", "ordinal", name=op.f("uq_steps_trace_id_tick_run_ordinal")),
        comment="The journal: everything an agent asked for, in order, and what came of it.",
    )
    op.create_index(
        "ix_steps_open", "steps", ["trace_id"], unique=False, postgresql_where=sa.text("status in ('ready', 'running')")
    )
    op.create_table(
        "subagents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("name", sa.Text(), nullable=False, comment="Its name, unique in the trace."),
        sa.Column("parent", sa.Text(), nullable=True, comment="Name of the subagent that made it; null for main."),
        sa.Column("description", sa.Text(), nullable=False, comment="Its task."),
        sa.Column(
            "schema",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="What it must return.",
        ),
        sa.Column("time_budget", sa.Double(), nullable=False, comment="Minutes."),
        sa.Column("completed", sa.Boolean(), nullable=False, comment="Whether it has returned to its caller."),
        sa.Column(
            "returned",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What it returned; null before.",
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_subagents_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subagents")),
        sa.UniqueConstraint("trace_id", "name", name=op.f("uq_subagents_trace_id_name")),
        comment="The agents of a trace: main, and those that it made. The rows of the problem map.",
    )
    op.create_table(
        "ticks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("number", sa.BigInteger(), nullable=False, comment="Position in the trace, from 0."),
        sa.Column("subagent", sa.Text(), nullable=False, comment="Name of the subagent whose tick it is."),
        sa.Column(
            "caller",
            sa.BigInteger(),
            nullable=True,
            comment="Number of the tick whose action waits for this subagent; null for main.",
        ),
        sa.Column(
            "deadline", sa.Double(), nullable=False, comment="When the subagent's time is up, seconds since the epoch."
        ),
        sa.Column(
            "run",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="How often it was started over, after the software changed under it.",
        ),
        sa.Column(
            "revision",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Of the job's settings that it was begun with.",
        ),
        sa.Column(
            "paused_seconds",
            sa.Double(),
            server_default="0",
            nullable=False,
            comment="For how long the job had been paused by then.",
        ),
        sa.Column("first_block", sa.BigInteger(), nullable=False, comment="Index of its first block."),
        sa.Column(
            "repeats",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Ticks in a row before it with equal actions and outcomes.",
        ),
        sa.Column(
            "clock",
            sa.Double(),
            nullable=False,
            comment="When it began, seconds since the epoch: the program's clock starts here.",
        ),
        sa.Column("reward", sa.Double(), nullable=True, comment="0 to 0.5; null while it runs."),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True, comment="When it was over."),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_ticks_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ticks")),
        sa.UniqueConstraint("trace_id", "number", name=op.f("uq_ticks_trace_id_number")),
        comment="Turns of an agent. Number 0 is the bootstrap's own.",
    )
    op.create_table(
        "candidates",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that sampled it."),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="Among the candidates of its round, from 0."),
        sa.Column("block_index", sa.BigInteger(), nullable=False, comment="Index of the block it was sampled for."),
        sa.Column(
            "type",
            sa.Text(),
            nullable=False,
            comment="Type of that block; bm25-query: a query for its header; next-type: a name for it.",
        ),
        sa.Column(
            "round",
            sa.BigInteger(),
            nullable=False,
            comment="Of the cascade, from 0; those of a tree search count from 1.",
        ),
        sa.Column(
            "depth", sa.BigInteger(), nullable=True, comment="Of a tree's node, from 1; null: a whole candidate."
        ),
        sa.Column("parent_id", sa.BigInteger(), nullable=True, comment="The node that it goes on from."),
        sa.Column(
            "text",
            sa.Text(),
            nullable=False,
            comment="The body from its beginning: fixed prefix or parent's text, and what was sampled.",
        ),
        sa.Column("finish_reason", sa.Text(), nullable=False, comment="stop or length, as the server says."),
        sa.Column("tokens", sa.BigInteger(), nullable=False, comment="Sampled tokens."),
        sa.Column(
            "token_ids", postgresql.ARRAY(sa.Integer()), nullable=True, comment="Ids of the sampled tokens, by setting."
        ),
        sa.Column(
            "logprobs",
            postgresql.ARRAY(sa.REAL()),
            nullable=True,
            comment="Log-probabilities of the sampled tokens, by setting.",
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["candidates.id"], name=op.f("fk_candidates_parent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_candidates_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_candidates_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidates")),
        sa.UniqueConstraint("step_id", "position", name=op.f("uq_candidates_step_id_position")),
        comment="Every text the model was sampled for, losers included.",
    )
    op.create_index(op.f("ix_candidates_parent_id"), "candidates", ["parent_id"], unique=False)
    op.create_index(op.f("ix_candidates_trace_id"), "candidates", ["trace_id"], unique=False)
    op.create_table(
        "evaluations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that ran it."),
        sa.Column("tick", sa.BigInteger(), nullable=False, comment="Number of its tick."),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="Among the evaluations of the tick, from 0."),
        sa.Column(
            "scope", sa.Text(), nullable=False, comment="task: bound by the bootstrap; tick: written by the agent."
        ),
        sa.Column("title", sa.Text(), nullable=False, comment="Its title, a question."),
        sa.Column(
            "value",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What it returned: a JSON value, or the repr of what is none. Null on an error.",
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="The exception, where it raised one."),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_evaluations_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_evaluations_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sa.UniqueConstraint("step_id", "position", name=op.f("uq_evaluations_step_id_position")),
        comment="Results of evaluation callbacks, the task's and the tick's.",
    )
    op.create_index(op.f("ix_evaluations_trace_id"), "evaluations", ["trace_id"], unique=False)
    op.create_table(
        "grounded_labels",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that ran the assertion."),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="Among the assertions of the step that were reached, from 0.",
        ),
        sa.Column("question", sa.Text(), nullable=False, comment="The assertion's message."),
        sa.Column("answer", sa.Boolean(), nullable=False, comment="Whether it held."),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_grounded_labels_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["trace_id"], ["traces.id"], name=op.f("fk_grounded_labels_trace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grounded_labels")),
        sa.UniqueConstraint("step_id", "position", name=op.f("uq_grounded_labels_step_id_position")),
        comment="Questions that assertions asked, and how they really came out. See blocks.executed_by.",
    )
    op.create_index(op.f("ix_grounded_labels_trace_id"), "grounded_labels", ["trace_id"], unique=False)
    op.create_table(
        "retrievals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that ran it."),
        sa.Column("query", sa.Text(), nullable=False, comment="The query, with the type restriction of a young trace."),
        sa.Column(
            "before",
            sa.BigInteger(),
            nullable=False,
            comment="Cutoff: only blocks of the trace below this index, which had left the window.",
        ),
        sa.Column("least_score", sa.Double(), nullable=False, comment="Hits below this score were dropped."),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_retrievals_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_retrievals_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrievals")),
        sa.UniqueConstraint("step_id", name=op.f("uq_retrievals_step_id")),
        comment="Queries that were run before a block was written, and what they could see.",
    )
    op.create_index(op.f("ix_retrievals_trace_id"), "retrievals", ["trace_id"], unique=False)
    op.create_table(
        "blocks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("index", sa.BigInteger(), nullable=False, comment="Position in the trace, from 0, without gaps."),
        sa.Column("tick", sa.BigInteger(), nullable=False, comment="Number of its tick."),
        sa.Column("subagent", sa.Text(), nullable=False, comment="Name of the subagent that wrote it."),
        sa.Column("type", sa.Text(), nullable=False, comment="Its type: orientation, action, ..."),
        sa.Column("body", sa.Text(), nullable=False, comment="The text between header and footer, not commented out."),
        sa.Column("rendered", sa.Text(), nullable=False, comment="The block as it stands in the trace."),
        sa.Column("timestamp", sa.Double(), nullable=False, comment="When its writing began, seconds since the epoch."),
        sa.Column("time_remaining", sa.Double(), nullable=False, comment="Seconds left of the time budget then."),
        sa.Column(
            "block_size",
            sa.BigInteger(),
            nullable=True,
            comment="Tokens the model was given; null where it did not write the block.",
        ),
        sa.Column("bm25_query", sa.Text(), nullable=True, comment="The query that the model wrote before it."),
        sa.Column("title", sa.Text(), nullable=True, comment="Of an observation."),
        sa.Column(
            "tick_start", sa.BigInteger(), nullable=True, comment="Of an orientation: index of the tick's first block."
        ),
        sa.Column("working_directory", sa.Text(), nullable=True, comment="Of an orientation."),
        sa.Column(
            "compiles", sa.Boolean(), nullable=False, comment="Whether its body is legal Python (always true of text)."
        ),
        sa.Column("question", sa.Text(), nullable=True, comment="What the evaluator was asked about it."),
        sa.Column(
            "answer", sa.Boolean(), nullable=True, comment="The answer, drawn once with the model's own probability."
        ),
        sa.Column("probability", sa.Double(), nullable=True, comment="Of the drawn answer."),
        sa.Column(
            "ran",
            sa.Boolean(),
            nullable=True,
            comment="Whether it ran without errors; null: it was not executed. Of a return: whether its caller went on so.",
        ),
        sa.Column("exception", sa.Text(), nullable=True, comment="Class of the exception that ended it."),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), nullable=False, comment="Tags."),
        sa.Column(
            "score", sa.Double(), nullable=True, comment="Raw score: log odds after rewriting, without penalties."
        ),
        sa.Column("reward", sa.Double(), nullable=True, comment="Its part of the tick's reward."),
        sa.Column(
            "preference",
            sa.Double(),
            nullable=True,
            comment="What its score is corrected by in preference data; null: nothing.",
        ),
        sa.Column("candidate_id", sa.BigInteger(), nullable=True, comment="The candidate it was made of."),
        sa.Column("executed_by", sa.BigInteger(), nullable=True, comment="The step that executed it."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was recorded.",
        ),
        sa.CheckConstraint(
            "type in ('genesis', 'bootstrap', 'task-reminder', 'observation', 'orientation', 'action', 'error', 'debug', 'backtrack', 'expectation', 'option', 'observation-inference', 'evaluation', 'outcome', 'return')",
            name=op.f("ck_blocks_type"),
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_blocks_candidate_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["executed_by"], ["steps.id"], name=op.f("fk_blocks_executed_by"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_blocks_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blocks")),
        sa.UniqueConstraint("trace_id", "index", name=op.f("uq_blocks_trace_id_index")),
        comment="The blocks of the traces, as recorded.",
    )
    op.create_index(op.f("ix_blocks_candidate_id"), "blocks", ["candidate_id"], unique=False)
    op.create_index(op.f("ix_blocks_executed_by"), "blocks", ["executed_by"], unique=False)
    op.create_table(
        "prompts",
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("server", sa.Text(), nullable=False, comment="Base URL of the server that answered."),
        sa.Column(
            "first_block", sa.BigInteger(), nullable=False, comment="Index of the oldest block in it besides 0 and 1."
        ),
        sa.Column(
            "tokens",
            sa.BigInteger(),
            nullable=True,
            comment="Prompt tokens up to the body, as the server counts; null: it can't say.",
        ),
        sa.Column(
            "cached",
            sa.BigInteger(),
            nullable=True,
            comment="Of these, how many its prefix cache held; null: it does not say.",
        ),
        sa.Column(
            "cut",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What was left out as the model's length had no room; null: nothing.",
        ),
        sa.Column(
            "token_ids",
            postgresql.ARRAY(sa.Integer()),
            nullable=True,
            comment="Ids of what no block holds: what was retrieved and asked, header, the body's fixed beginning; by setting.",
        ),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_prompts_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_prompts_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("step_id", name=op.f("pk_prompts")),
        comment="What the model read in a step: blocks 0 and 1, those from first_block to the one to write, "
        "and what no block holds.",
    )
    op.create_index(op.f("ix_prompts_trace_id"), "prompts", ["trace_id"], unique=False)
    op.create_table(
        "block_tokens",
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column(
            "index",
            sa.BigInteger(),
            nullable=False,
            comment="Its index. The first one begins with the template's opening.",
        ),
        sa.Column("token_ids", postgresql.ARRAY(sa.Integer()), nullable=False, comment="Ids."),
        sa.ForeignKeyConstraint(
            ["trace_id", "index"],
            ["blocks.trace_id", "blocks.index"],
            name=op.f("fk_block_tokens_trace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("trace_id", "index", name=op.f("pk_block_tokens")),
        comment="The tokens of blocks as the model read them, by setting.",
    )
    op.create_table(
        "penalties",
        sa.Column("candidate_id", sa.BigInteger(), nullable=False, comment="The candidate."),
        sa.Column("compiles", sa.Boolean(), nullable=False, comment="Whether it is legal Python."),
        sa.Column(
            "viable",
            sa.Boolean(),
            nullable=True,
            comment="Of a half-written node: whether it may still become legal; only where not, the search counted a penalty.",
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="The syntax error, where it is not."),
        sa.Column(
            "rewritten", sa.Text(), nullable=True, comment="Its legal structure, where that differs from its text."
        ),
        sa.Column("syntax", sa.Double(), nullable=False, comment="Does not compile."),
        sa.Column("extra_elements", sa.Double(), nullable=False, comment="More top-level elements than the shape has."),
        sa.Column(
            "not_a_string", sa.Double(), nullable=False, comment="A prose block that does not begin with a string."
        ),
        sa.Column("code_in_prose", sa.Double(), nullable=False, comment="Code-like text inside a prose block."),
        sa.Column(
            "shape",
            sa.Double(),
            nullable=False,
            comment="A callback block that is not exactly a function and its registration.",
        ),
        sa.Column("wrong_name", sa.Double(), nullable=False, comment="Registers another name than the function's."),
        sa.Column(
            "title", sa.Double(), nullable=False, comment="An evaluation whose title is no question, or can't be read."
        ),
        sa.Column(
            "assertions",
            sa.Double(),
            nullable=False,
            comment="Assertions missing, without a question, inside a try, or too many.",
        ),
        sa.Column("forbidden_calls", sa.Double(), nullable=False, comment="Calls that do not belong into an action."),
        sa.Column(
            "length_after_debug",
            sa.Double(),
            nullable=False,
            comment="Length beyond 96 tokens straight after a debug block.",
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_penalties_candidate_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("candidate_id", name=op.f("pk_penalties")),
        comment="What linting found in a candidate. Subtracted from its score for selection only.",
    )
    op.create_table(
        "scores",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that asked."),
        sa.Column("candidate_id", sa.BigInteger(), nullable=True, comment="The candidate asked about."),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="Of the text within the step, from 0."),
        sa.Column(
            "stage",
            sa.Text(),
            nullable=False,
            comment="selection: as sampled; raw: as rewritten; option: asked of the model itself.",
        ),
        sa.Column("rubric", sa.Text(), nullable=False, comment="Version of the rubric and its calibration examples."),
        sa.Column("question", sa.Text(), nullable=False, comment="The question."),
        sa.Column("yes", sa.Double(), nullable=False, comment="Probability mass of yes."),
        sa.Column("no", sa.Double(), nullable=False, comment="Probability mass of no."),
        sa.Column(
            "score", sa.Double(), nullable=True, comment="Log odds; null where the model gave neither side any mass."
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_scores_candidate_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_scores_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_scores_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scores")),
        sa.UniqueConstraint("step_id", "position", "question", name=op.f("uq_scores_step_id_position_question")),
        comment="Yes/no questions put to the model: a row per text and question, never overwritten.",
    )
    op.create_index(op.f("ix_scores_candidate_id"), "scores", ["candidate_id"], unique=False)
    op.create_index(op.f("ix_scores_trace_id"), "scores", ["trace_id"], unique=False)
    op.create_table(
        "retrieval_hits",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("retrieval_id", sa.BigInteger(), nullable=False, comment="Its query."),
        sa.Column("rank", sa.BigInteger(), nullable=False, comment="From 1, the best."),
        sa.Column("block_id", sa.BigInteger(), nullable=True, comment="The block found."),
        sa.Column("example_id", sa.BigInteger(), nullable=True, comment="Or the example found."),
        sa.Column("score", sa.Double(), nullable=False, comment="BM25."),
        sa.Column("used", sa.Boolean(), nullable=False, comment="Whether it was put into the prompt."),
        sa.CheckConstraint("(block_id is null) <> (example_id is null)", name=op.f("ck_retrieval_hits_one_source")),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_retrieval_hits_block_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["example_id"], ["examples.id"], name=op.f("fk_retrieval_hits_example_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["retrieval_id"], ["retrievals.id"], name=op.f("fk_retrieval_hits_retrieval_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrieval_hits")),
        sa.UniqueConstraint("retrieval_id", "rank", name=op.f("uq_retrieval_hits_retrieval_id_rank")),
        comment="What a query found, best first; `used` says what the model was shown.",
    )
    op.create_index(op.f("ix_retrieval_hits_block_id"), "retrieval_hits", ["block_id"], unique=False)
    op.create_index(op.f("ix_retrieval_hits_example_id"), "retrieval_hits", ["example_id"], unique=False)
    op.create_table(
        "segments",
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column(
            "number",
            sa.BigInteger(),
            autoincrement=False,
            nullable=False,
            comment="Position in the trace's index, from 0.",
        ),
        sa.Column("end", sa.BigInteger(), nullable=False, comment="Index of the block behind its last one."),
        sa.Column(
            "documents", sa.LargeBinary(), nullable=False, comment="Ids, lengths in words and types of its blocks."
        ),
        sa.Column(
            "spread", sa.LargeBinary(), nullable=False, comment="How many words stand in so many blocks, up to its end."
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_segments_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trace_id", "number", name=op.f("pk_segments")),
        comment="The index of what traces left behind, in parts of equal size; see retrieval.py.",
    )
    op.create_table(
        "postings",
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("word", sa.Text(), nullable=False, comment="The word, in lower case."),
        sa.Column("segment", sa.BigInteger(), autoincrement=False, nullable=False, comment="Number of its segment."),
        sa.Column(
            "documents",
            sa.BigInteger(),
            nullable=False,
            comment="Indexed blocks of the trace with the word, up to the segment's end.",
        ),
        sa.Column("blocks", sa.LargeBinary(), nullable=False, comment="Positions in the index and times, in pairs."),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_postings_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trace_id", "word", "segment", name=op.f("pk_postings")),
        comment="Where in a segment a word stands.",
    )
    op.create_table(
        "channels",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column(
            "name",
            sa.Text(),
            nullable=False,
            comment="What the trace calls it; of one of Discord's channels the id there.",
        ),
        sa.Column(
            "messages", sa.BigInteger(), server_default="0", nullable=False, comment="Messages and reactions in it."
        ),
        sa.Column(
            "opened_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the trace opened it first.",
        ),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True, comment="When the trace closed it."),
        sa.Column(
            "look_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="The bridge to Discord looks at it again after this.",
        ),
        sa.Column(
            "fetched",
            sa.BigInteger(),
            nullable=True,
            comment="Discord's id of the newest message that was fetched from there.",
        ),
        sa.Column("failure", sa.Text(), nullable=True, comment="Why the bridge has given it up."),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_channels_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channels")),
        sa.UniqueConstraint("trace_id", "name", name=op.f("uq_channels_trace_id_name")),
        comment="Where traces exchange messages with people (weavegen chat, or Discord).",
    )
    op.create_index(
        "ix_channels_due", "channels", ["look_at"], unique=False, postgresql_where=sa.text("failure is null")
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("channel_id", sa.BigInteger(), nullable=False, comment="Its channel."),
        sa.Column(
            "number", sa.BigInteger(), nullable=False, comment="Position in its channel, from 1: its id for the agent."
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="message or reaction."),
        sa.Column("author", sa.Text(), nullable=False, comment="Who wrote it: agent, or a person's name."),
        sa.Column("own", sa.Boolean(), nullable=False, comment="Whether the agent wrote it."),
        sa.Column("text", sa.Text(), nullable=False, comment="What was written; of a reaction the emoji."),
        sa.Column(
            "about", sa.BigInteger(), nullable=True, comment="Number of the message that it answers or reacts to."
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was written.",
        ),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True, comment="When the bridge took it to Discord."),
        sa.Column("discord_id", sa.Text(), nullable=True, comment="Its id at Discord."),
        sa.CheckConstraint("kind in ('message', 'reaction')", name=op.f("ck_messages_kind")),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["channels.id"], name=op.f("fk_messages_channel_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("channel_id", "number", name=op.f("uq_messages_channel_id_number")),
        comment="What agents and people said in channels.",
    )
    op.create_table(
        "exchanges",
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step."),
        sa.Column("turn", sa.BigInteger(), nullable=False, comment="Number of the exchange in its step, from 1."),
        sa.Column("do", sa.Text(), nullable=False, comment="open, close, send, reply, react or read."),
        sa.Column(
            "answer",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="What it was answered by.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was done.",
        ),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_exchanges_step_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("step_id", "turn", name=op.f("pk_exchanges")),
        comment="What steps did with channels, and the answers: a step that is done again gets the same ones.",
    )
    op.execute(READER)
    op.execute(CONFINE)


def downgrade() -> None:
    op.execute(
        """
        do $$
        begin
          execute format(
            'alter default privileges in schema %I revoke select on tables from weavegen_reader', current_schema()
          );
        exception when undefined_object or insufficient_privilege then null;
        end
        $$
        """
    )
    op.drop_table("exchanges")
    op.drop_table("messages")
    op.drop_index("ix_channels_due", table_name="channels", postgresql_where=sa.text("failure is null"))
    op.drop_table("channels")
    op.drop_table("postings")
    op.drop_table("segments")
    op.drop_index(op.f("ix_retrieval_hits_example_id"), table_name="retrieval_hits")
    op.drop_index(op.f("ix_retrieval_hits_block_id"), table_name="retrieval_hits")
    op.drop_table("retrieval_hits")
    op.drop_index(op.f("ix_scores_trace_id"), table_name="scores")
    op.drop_index(op.f("ix_scores_candidate_id"), table_name="scores")
    op.drop_table("scores")
    op.drop_table("penalties")
    op.drop_table("block_tokens")
    op.drop_index(op.f("ix_prompts_trace_id"), table_name="prompts")
    op.drop_table("prompts")
    op.drop_index(op.f("ix_blocks_executed_by"), table_name="blocks")
    op.drop_index(op.f("ix_blocks_candidate_id"), table_name="blocks")
    op.drop_table("blocks")
    op.drop_index(op.f("ix_retrievals_trace_id"), table_name="retrievals")
    op.drop_table("retrievals")
    op.drop_index(op.f("ix_grounded_labels_trace_id"), table_name="grounded_labels")
    op.drop_table("grounded_labels")
    op.drop_index(op.f("ix_evaluations_trace_id"), table_name="evaluations")
    op.drop_table("evaluations")
    op.drop_index(op.f("ix_candidates_trace_id"), table_name="candidates")
    op.drop_index(op.f("ix_candidates_parent_id"), table_name="candidates")
    op.drop_table("candidates")
    op.drop_table("ticks")
    op.drop_table("subagents")
    op.drop_index("ix_steps_open", table_name="steps", postgresql_where=sa.text("status in ('ready', 'running')"))
    op.drop_table("steps")
    op.drop_index(op.f("ix_events_trace_id"), table_name="events")
    op.drop_table("events")
    op.drop_index("uq_environments_open", table_name="environments", postgresql_where=sa.text("closed_at is null"))
    op.drop_index(op.f("ix_environments_trace_id"), table_name="environments")
    op.drop_index("ix_environments_open", table_name="environments", postgresql_where=sa.text("closed_at is null"))
    op.drop_table("environments")
    op.drop_index("ix_traces_running", table_name="traces", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("ix_traces_retry_of", table_name="traces", postgresql_where=sa.text("retry_of is not null"))
    op.drop_index("ix_traces_queued", table_name="traces", postgresql_where=sa.text("status = 'queued'"))
    op.drop_index(op.f("ix_traces_bootstrap_id"), table_name="traces")
    op.drop_table("traces")
    op.drop_table("job_settings")
    op.drop_table("jobs")
    op.drop_table("examples")
    op.drop_table("bootstraps")
