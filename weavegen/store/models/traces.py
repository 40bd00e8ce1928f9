"""Jobs with what they were given, their traces and ticks, and the journal of steps."""

from datetime import datetime

import sqlalchemy as sa

from weavegen.store.models.columns import column, json, now, reference, table
from weavegen.store.states import JobState, StepStatus, TraceStatus

TEMPLATES = table(
    "templates",
    "Chat templates of models, by content: the texts around the messages that a model reads.",
    column("sha256", str, "Hash of the texts, hexadecimal.", unique=True),
    json("texts", "The texts by name (weavegen/kernel/template.py)."),
    now("created_at", "When it was first used."),
)

PACKAGES = table(
    "packages",
    "Sets of packages that the Python code of traces can import, by content.",
    column("sha256", str, "Hash of the content, hexadecimal.", unique=True),
    column("requirements", str, "Text of the requirements file; empty: a folder of the user."),
    column("folder", str | None, "The user's folder, which each execute host must have; null: a requirements file."),
    json("versions", "Version by package."),
    now("created_at", "When it was first used."),
)

STARTING_FILES = table(
    "starting_files",
    "Files with which /app begins in the boxes of a job, by content.",
    column("sha256", str, "Hash of the archive, hexadecimal.", unique=True),
    column("archive", bytes, "The files, as a tar archive."),
    now("created_at", "When they were first used."),
)

HARBOR_TASKS = table(
    "harbor_tasks",
    "Harbor tasks by content: worlds in container images, with a verifier of their own.",
    column("sha256", str, "Hash of the task and its files, hexadecimal.", unique=True),
    column("name", str, "Name of its folder."),
    json("task", "What its task.toml asks for, checked, with the instructions."),
    json("metadata", "Its table [metadata], and name, description and keywords of [task]."),
    column("files", bytes, "Its folders environment, tests, solution and steps, as a tar archive."),
    now("created_at", "When it was first enqueued."),
)

JOBS = table(
    "jobs",
    "Traces that a user enqueued together, with one model and the same settings.",
    column("name", str, "Name that the user gave it; by default the bootstrap's."),
    column("agent", str, "The program that writes the traces: weave, ..."),
    column("model", str | None, "The model that writes the traces; null: no model was asked yet."),
    column("asked_model", str | None, "Model that the user named; null: whichever the servers have."),
    column("evaluator", str | None, "Model that answers the yes/no questions; null: the one that writes."),
    column("student", str | None, "Model that is to learn from the traces; null: the one that writes."),
    reference("template_id", "Chat template of its prompts; null: no model was asked yet.", ondelete=None),
    reference("packages_id", "Packages that its code can import; null: the standard library alone.", ondelete=None),
    reference("starting_files_id", "Files with which /app begins; null: none.", ondelete=None),
    reference("called_by", "The job that delegates to its traces; null: people enqueued it.", to="jobs", nullable=True),
    column("seed", int, "Seed of the job, from which every trace's seed is derived."),
    json("settings", "The settings that differ from the defaults."),
    json("mcp_servers", "MCP servers whose tools its traces have, by name; null: none.", nullable=True),
    column("version", str, "Version of weavegen that enqueued it."),
    column("enqueued_by", str | None, "Who enqueued it; null: an older version, which did not record it."),
    now("created_at", "When it was enqueued."),
    column("state", JobState, "active, paused or draining.", server_default="active"),
    column("paused_at", datetime | None, "Since when it is paused; null: it is not paused."),
    column("pause_reason", str | None, "Why weavegen paused it, in one line; null: a person did, or it is not."),
    column("paused_seconds", float, "Seconds that it was paused, in all its pauses.", server_default="0"),
    column("revision", int, "Newest revision of its settings; 0: as it was enqueued.", server_default="0"),
    sa.UniqueConstraint("called_by", "agent"),
)

JOB_SETTINGS = table(
    "job_settings",
    "Revisions of settings by `weavegen retune`. Revision 0 is in the table jobs.",
    reference("job_id", "Its job.", primary_key=True),
    column("revision", int, "From 1.", primary_key=True, autoincrement=False),
    json("settings", "The settings that differ from the defaults, as in jobs.settings."),
    now("created_at", "When the revision was made."),
)

BOOTSTRAPS = table(
    "bootstraps",
    "Bootstrap files by content: the hand-written first tick of a trace.",
    column("sha256", str, "Hash of the source, hexadecimal.", unique=True),
    column("name", str, "File name under which it was first enqueued."),
    column("source", str, "The file's text."),
    now("created_at", "When it was first enqueued."),
)

DOCUMENTS = table(
    "documents",
    "Texts that agents may read, by content.",
    column("sha256", str, "Hash of the text in UTF-8, hexadecimal.", unique=True),
    column("text", str, "The text. Lines end with a line feed."),
    column("characters", int, "Number of characters."),
    column("lines", int, "Number of lines."),
    now("created_at", "When it was first given to a job."),
)

JOB_DOCUMENTS = table(
    "job_documents",
    "The documents that the agents of a job may read.",
    reference("job_id", "Its job.", primary_key=True),
    column("path", str, "Path in the job's folder, with slashes.", primary_key=True),
    reference("document_id", "The text."),
)


TRACES = table(
    "traces",
    "Traces: everything that one agent writes, block by block.",
    reference("job_id", "Its job."),
    column("number", int, "Position in its job, from 1."),
    reference("bootstrap_id", "Its bootstrap file.", index=True),
    reference("harbor_task_id", "Its Harbor task; null: none.", ondelete=None),
    json("params", "Parameters that the bootstrap reads as args.params."),
    column("seed", int, "Seed from which all randomness of the trace derives."),
    column("status", TraceStatus, "queued, running, ended, failed or cancelled.", server_default="queued"),
    column("ended_because", str | None, "returned, or the spent budget: ticks, blocks, bytes, time, ..."),
    column("failure_kind", str | None, "model, environment, bootstrap or bug, if it failed."),
    column("failure", str | None, "Why it failed, in one line."),
    json("returned", "What the agent returned to its caller, with the evaluations of its task.", nullable=True),
    column("ticks", int, "Finished ticks, without the bootstrap's.", server_default="0"),
    column("blocks", int, "Blocks recorded.", server_default="0"),
    column("bytes", int, "Bytes of the rendered trace.", server_default="0"),
    column("server", str | None, "Base URL of its model server; null before it asks one."),
    column("sampled_tokens", int, "Sampled tokens, with those of rejected candidates.", server_default="0"),
    column("candidates", int, "Candidates sampled for blocks, rejected ones included.", server_default="0"),
    column("written", int, "Recorded blocks that were made of a candidate.", server_default="0"),
    now("created_at", "When it was enqueued."),
    column("started_at", datetime | None, "When its first step became ready."),
    column("finished_at", datetime | None, "When it ended, failed or was cancelled."),
    column("restarts", int, "Ticks that were started over. Only these drop blocks.", server_default="0"),
    reference("retry_of", "The trace that it is a retry of.", to="traces", ondelete="SET NULL"),
    # Without "on delete": a trace whose forks are still there can't be deleted.
    reference("fork_of", "The trace whose first blocks it shares.", to="traces", ondelete=None),
    column("fork_at", int | None, "In a fork: blocks below this index are copies."),
    reference(
        "called_by",
        "The step of another trace that delegated to it and waits for what it returns; null: none.",
        to="steps",
        ondelete="SET NULL",
        use_alter=True,
    ),
    column("shared_bytes", int, "Bytes of these copies; 0 before it starts.", server_default="0"),
    column(
        "lag",
        float,
        "Seconds that its clock is behind: a fork's clock goes on from the time of the other trace at the cut.",
        server_default="0",
    ),
    sa.UniqueConstraint("job_id", "number"),
    sa.Index("ix_traces_queued", "job_id", "id", postgresql_where=sa.text("status = 'queued'")),
    sa.Index("ix_traces_running", "id", "job_id", postgresql_where=sa.text("status = 'running'")),
    sa.Index("ix_traces_retry_of", "retry_of", postgresql_where=sa.text("retry_of is not null")),
    sa.Index("ix_traces_fork_of", "fork_of", postgresql_where=sa.text("fork_of is not null")),
    sa.Index("ix_traces_called_by", "called_by", postgresql_where=sa.text("called_by is not null")),
    sa.CheckConstraint("(fork_of is null) = (fork_at is null)", name="fork"),
)

SUBAGENTS = table(
    "subagents",
    "The subagents of a trace: main, and those that it made. The rows of the problem map.",
    reference("trace_id", "Its trace."),
    column("name", str, "Its name, unique in the trace."),
    column("parent", str | None, "Name of the subagent that made it; null for main."),
    column("description", str, "The task of the subagent."),
    json("schema", "Schema of what it must return."),
    column("time_budget", float, "Time budget in minutes."),
    column("completed", bool, "Whether it has returned to its caller."),
    json("returned", "What it returned; null: it has not returned yet.", nullable=True),
    sa.UniqueConstraint("trace_id", "name"),
)

TICKS = table(
    "ticks",
    "Ticks: turns of an agent. Number 0 is the bootstrap's own.",
    reference("trace_id", "Its trace."),
    column("number", int, "Position in the trace, from 0."),
    column("subagent", str, "Name of the subagent whose tick it is."),
    column("caller", int | None, "Number of the tick whose action waits for this subagent; null for main."),
    column("deadline", float, "When the subagent's time budget ends, in seconds since the epoch."),
    column("run", int, "How often it was started over, after an upgrade.", server_default="0"),
    column("revision", int, "Revision of the job's settings that it uses.", server_default="0"),
    column("paused_seconds", float, "Seconds that the job was paused before it.", server_default="0"),
    json(
        "inherited",
        "In a tick that a fork continues: who wrote its first blocks, in order, as objects with until (the index "
        "after these blocks), seed, lag and revision. Null: the trace wrote all of it.",
        nullable=True,
    ),
    json("state", "Value that the tick before passed to this one; null: none.", nullable=True),
    column("first_block", int, "Index of its first block."),
    column("repeats", int, "Ticks in a row before it with equal actions and outcomes.", server_default="0"),
    column("clock", float, "When it began, in seconds since the epoch. The program's clock starts here."),
    column("reward", float | None, "Reward, 0 to 0.5; null: it runs, or nothing could be evaluated."),
    column("protected", bool, "Whether the reward counts protected evaluations only.", server_default="false"),
    column("not_evaluated", int, "Protected evaluations that the reward leaves out.", server_default="0"),
    column("finished_at", datetime | None, "When it was over."),
    sa.UniqueConstraint("trace_id", "number"),
    sa.Index("ix_ticks_finished", "finished_at", "id", postgresql_where=sa.text("finished_at is not null")),
)

EVENTS = table(
    "events",
    "The history of traces, for people: events other than blocks.",
    reference("trace_id", "Its trace.", index=True),
    now("at", "When it happened."),
    column("kind", str, "started, ended, failed, cancelled, tick restarted, ..."),
    column("detail", str | None, "Details, in one line."),
)


STEPS = table(
    "steps",
    "The journal: everything that a trace asked for, in order, with the results.",
    reference("trace_id", "Its trace."),
    column("tick", int, "Number of its tick."),
    column("run", int, "Run of the tick, see ticks.run."),
    column("ordinal", int, "Position within the tick, from 0."),
    column(
        "kind",
        str,
        "sample, lint, score, retrieve, execute, consult. No worker claims the kinds work (a subagent's ticks), "
        "delegate (a trace of another agent) and await (a person).",
    ),
    column("label", str, "Purpose, as Flower shows it: block type, round, number of candidates."),
    column("status", StepStatus, "ready, running, done, failed or void.", server_default="ready"),
    json("request", "The request (weavegen/kernel/steps.py)."),
    json("result", "The result. Emptied after the tick if other tables hold it.", nullable=True),
    column("failure_kind", str | None, "Kind of the failure: model, environment, ...; null: none."),
    column("failure", str | None, "Why it failed, or its last transient error."),
    column("queue", str, "Celery queue of its messages."),
    column("claims", int, "How often workers claimed it. Fences off old holders.", server_default="0"),
    column("worker", str | None, "The worker that claimed it last, as host:pid."),
    column("lease_until", datetime | None, "When another worker may claim it."),
    now("ready_at", "When it became ready."),
    now("send_after", "When the sweeper sends it again, unless a worker claimed it."),
    column("claimed_at", datetime | None, "When it was last claimed."),
    column("finished_at", datetime | None, "When its result was stored."),
    column("model_seconds", float | None, "Seconds of waiting for the model server."),
    column("environment_seconds", float | None, "Seconds of waiting for the environment."),
    column("working_seconds", float | None, "Seconds from claim to commit, model and environment included."),
    reference(
        "copy_of",
        "In a fork: the step of another trace that this is a copy of, for replay. Costs and prompts are "
        "kept with that step only. Null: no copy.",
        to="steps",
        ondelete="SET NULL",
    ),
    sa.UniqueConstraint("trace_id", "tick", "run", "ordinal"),
    sa.Index("ix_steps_open", "trace_id", postgresql_where=sa.text("status in ('ready', 'running')")),
    sa.Index("ix_steps_copy_of", "copy_of", postgresql_where=sa.text("copy_of is not null")),
)

ENVIRONMENTS = table(
    "environments",
    "The live Python processes in which traces run their code.",
    reference("trace_id", "Its trace.", index=True),
    column("host", str, "Host that it runs on; its steps go to the queue execute.<host>."),
    column("pid", int, "Process on that host."),
    column("sandbox", str, "Provider that isolates it: bubblewrap or none."),
    now("started_at", "When it was started."),
    column("steps_done", int, "Execute steps of its trace that were done then.", server_default="0"),
    column("closed_at", datetime | None, "When it was stopped, or found dead."),
    sa.Index("ix_environments_open", "host", postgresql_where=sa.text("closed_at is null")),
    sa.Index("uq_environments_open", "trace_id", unique=True, postgresql_where=sa.text("closed_at is null")),
)
