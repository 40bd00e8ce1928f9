"""The tables. Comments on every table and column are what psql and schema browsers show to users."""

import datetime
import enum
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from weavegen.blocks import BlockType

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class TraceStatus(enum.StrEnum):
    """queued → running → ended | failed | cancelled; queued → cancelled."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobState(enum.StrEnum):
    """active ⇄ paused, draining: what people want of a job. Whether its traces are over is another matter."""

    ACTIVE = "active"
    PAUSED = "paused"
    """No step of its traces is taken."""
    DRAINING = "draining"
    """No further trace of it starts."""


class StepStatus(enum.StrEnum):
    """ready → running → done | failed; running → ready when its lease ran out; any → void when it is overtaken."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"


class Numbers(sa.types.TypeDecorator[list[Any]]):
    """A PostgreSQL array of numbers, sent as text: psycopg would look at each of thousands of token ids."""

    impl = ARRAY
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[list[Any] | None], str | None]:
        def process(value: list[Any] | None) -> str | None:
            return None if value is None else f"{{{msgspec.json.encode(value)[1:-1].decode()}}}"

        return process


class Base(DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMING)
    type_annotation_map = {
        str: sa.Text,
        int: sa.BigInteger,
        float: sa.Double,
        datetime.datetime: sa.DateTime(timezone=True),
        dict[str, Any]: JSONB,
    }


def table(model: type[Base]) -> sa.Table:
    """The table of a model, for statements that need no objects."""
    assert isinstance(model.__table__, sa.Table)
    return model.__table__


def column(comment: str, **kw: Any) -> Any:
    return mapped_column(comment=comment, **kw)


def key(comment: str = "Identity.") -> Any:
    return mapped_column(sa.BigInteger, sa.Identity(), primary_key=True, comment=comment)


def reference(target: str, comment: str, **kw: Any) -> Any:
    return mapped_column(sa.BigInteger, sa.ForeignKey(target, ondelete="CASCADE"), comment=comment, **kw)


def one_of(name: str, column: str, values: type[enum.StrEnum]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} in ({', '.join(repr(str(value)) for value in values)})", name=name)


def json(comment: str, **kw: Any) -> Any:
    """A JSON column in which Python's None is SQL's null: a null is not a JSON null."""
    return mapped_column(JSONB(none_as_null=True), comment=comment, **kw)


def now(comment: str) -> Any:
    return mapped_column(comment=comment, server_default=sa.func.now())


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        one_of("state", "state", JobState),
        {"comment": "What a user enqueued in one go: traces that share a model and settings."},
    )

    id: Mapped[int] = key()
    name: Mapped[str] = column("What the user called it; the bootstrap's name by default.")
    agent: Mapped[str] = column("The program that writes the traces: weave, ...")
    model: Mapped[str | None] = column("Model asked for; null: the only one that the server has.")
    seed: Mapped[int] = column("Seed of the job, from which every trace's seed is derived.")
    settings: Mapped[dict[str, Any]] = json("The numbers of weavegen/settings.py that differ from the defaults.")
    version: Mapped[str] = column("Version of weavegen that enqueued it.")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    state: Mapped[str] = column("active, paused or draining.", server_default="active")
    paused_at: Mapped[datetime.datetime | None] = column("Since when it is paused; null: it is not.")
    paused_seconds: Mapped[float] = column("For how long it was paused, in all its pauses.", server_default="0")
    revision: Mapped[int] = column("Newest revision of its settings; 0: as it was enqueued.", server_default="0")


class JobSettings(Base):
    __tablename__ = "job_settings"
    __table_args__ = {"comment": "What `weavegen retune` made of a job's settings, all revisions but the first."}

    job_id: Mapped[int] = reference("jobs.id", "Its job.", primary_key=True)
    revision: Mapped[int] = column("From 1.", primary_key=True, autoincrement=False)
    settings: Mapped[dict[str, Any]] = json("All that differ from the defaults, as in jobs.settings.")
    created_at: Mapped[datetime.datetime] = now("When it was given.")


class Bootstrap(Base):
    __tablename__ = "bootstraps"
    __table_args__ = {"comment": "Bootstrap files by content: the hand-written first tick of a trace."}

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of the source, hexadecimal.", unique=True)
    name: Mapped[str] = column("File name under which it was first enqueued.")
    source: Mapped[str] = column("The file's text.")
    created_at: Mapped[datetime.datetime] = now("When it was first enqueued.")


class Trace(Base):
    __tablename__ = "traces"
    __table_args__ = (
        one_of("status", "status", TraceStatus),
        sa.UniqueConstraint("job_id", "number"),
        sa.Index("ix_traces_queued", "job_id", "id", postgresql_where=sa.text("status = 'queued'")),
        sa.Index("ix_traces_running", "id", "job_id", postgresql_where=sa.text("status = 'running'")),
        sa.Index("ix_traces_retry_of", "retry_of", postgresql_where=sa.text("retry_of is not null")),
        {"comment": "One run of an agent: one long Python file, block by block."},
    )

    id: Mapped[int] = key()
    job_id: Mapped[int] = reference("jobs.id", "Its job.")
    number: Mapped[int] = column("Position in its job, from 1.")
    bootstrap_id: Mapped[int] = reference("bootstraps.id", "Its bootstrap file.", index=True)
    params: Mapped[dict[str, Any]] = json("What the bootstrap reads as args.params.")
    seed: Mapped[int] = column("All that is random in the trace derives from this.")
    status: Mapped[str] = column("queued, running, ended, failed or cancelled.", server_default="queued")
    ended_because: Mapped[str | None] = column(
        "returned, or the budget that was spent: ticks, blocks, bytes, time, ..."
    )
    failure_kind: Mapped[str | None] = column("model, environment, bootstrap or bug, where it failed.")
    failure: Mapped[str | None] = column("Why it failed, in one line.")
    returned: Mapped[Any | None] = json("What the agent returned to its caller, with its task's evaluations.")
    ticks: Mapped[int] = column("Ticks finished, the bootstrap's not counted.", server_default="0")
    blocks: Mapped[int] = column("Blocks recorded.", server_default="0")
    bytes: Mapped[int] = column("Bytes of rendered trace.", server_default="0")
    server: Mapped[str | None] = column("Base URL of the model server that it sticks to; null before it asks one.")
    sampled_tokens: Mapped[int] = column("Tokens sampled from the model, losers included.", server_default="0")
    candidates: Mapped[int] = column("Candidates sampled for blocks, losers included.", server_default="0")
    written: Mapped[int] = column("Blocks recorded that were made of a candidate.", server_default="0")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    started_at: Mapped[datetime.datetime | None] = column("When its first step was made ready.")
    finished_at: Mapped[datetime.datetime | None] = column("When it ended, failed or was cancelled.")
    restarts: Mapped[int] = column(
        "Ticks that were started over; blocks change with these alone.", server_default="0"
    )
    retry_of: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("traces.id", ondelete="SET NULL"),
        comment="The trace that it does over, which failed or was cancelled.",
    )


class Subagent(Base):
    __tablename__ = "subagents"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "name"),
        {"comment": "The agents of a trace: main, and those that it made. The rows of the problem map."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    name: Mapped[str] = column("Its name, unique in the trace.")
    parent: Mapped[str | None] = column("Name of the subagent that made it; null for main.")
    description: Mapped[str] = column("Its task.")
    schema: Mapped[dict[str, Any]] = json("What it must return.")
    time_budget: Mapped[float] = column("Minutes.")
    completed: Mapped[bool] = column("Whether it has returned to its caller.")
    returned: Mapped[Any | None] = json("What it returned; null before.")


class Tick(Base):
    __tablename__ = "ticks"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "number"),
        {"comment": "Turns of an agent. Number 0 is the bootstrap's own."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    number: Mapped[int] = column("Position in the trace, from 0.")
    subagent: Mapped[str] = column("Name of the subagent whose tick it is.")
    caller: Mapped[int | None] = column("Number of the tick whose action waits for this subagent; null for main.")
    deadline: Mapped[float] = column("When the subagent's time is up, seconds since the epoch.")
    run: Mapped[int] = column(
        "How often it was started over, after the software changed under it.", server_default="0"
    )
    revision: Mapped[int] = column("Of the job's settings that it was begun with.", server_default="0")
    paused_seconds: Mapped[float] = column("For how long the job had been paused by then.", server_default="0")
    first_block: Mapped[int] = column("Index of its first block.")
    repeats: Mapped[int] = column("Ticks in a row before it with equal actions and outcomes.", server_default="0")
    clock: Mapped[float] = column("When it began, seconds since the epoch: the program's clock starts here.")
    reward: Mapped[float | None] = column("0 to 0.5; null while it runs.")
    finished_at: Mapped[datetime.datetime | None] = column("When it was over.")


class Step(Base):
    __tablename__ = "steps"
    __table_args__ = (
        one_of("status", "status", StepStatus),
        sa.UniqueConstraint("trace_id", "tick", "run", "ordinal"),
        sa.Index("ix_steps_open", "trace_id", postgresql_where=sa.text("status in ('ready', 'running')")),
        {"comment": "The journal: everything an agent asked for, in order, and what came of it."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    tick: Mapped[int] = column("Number of its tick.")
    run: Mapped[int] = column("Which run of the tick, see ticks.run.")
    ordinal: Mapped[int] = column("Position within the tick, from 0.")
    kind: Mapped[str] = column("sample, lint, score, retrieve, execute or work (the ticks of a subagent).")
    label: Mapped[str] = column("What for, as Flower shows it: block type, round, number of candidates.")
    status: Mapped[str] = column("ready, running, done, failed or void.", server_default="ready")
    request: Mapped[dict[str, Any]] = json("What was asked for (weavegen/steps.py).")
    result: Mapped[Any | None] = json(
        "What came of it; emptied when the tick is over, as the other tables hold it."
    )
    failure_kind: Mapped[str | None] = column("model or environment, where it can't be done at all.")
    failure: Mapped[str | None] = column("Why not; also the last transient error of a step that is tried again.")
    queue: Mapped[str] = column("Celery queue that it is sent to.")
    claims: Mapped[int] = column(
        "How often a worker took it; the fence against workers that lost it.", server_default="0"
    )
    worker: Mapped[str | None] = column("Who took it last.")
    lease_until: Mapped[datetime.datetime | None] = column("After this it is given to another worker.")
    ready_at: Mapped[datetime.datetime] = now("When it was asked for.")
    send_after: Mapped[datetime.datetime] = now("The sweeper sends it again after this, if nobody took it.")
    claimed_at: Mapped[datetime.datetime | None] = column("When it was taken last.")
    finished_at: Mapped[datetime.datetime | None] = column("When its result was stored.")
    model_seconds: Mapped[float | None] = column("Time spent waiting for the model server.")
    environment_seconds: Mapped[float | None] = column("Time spent waiting for the environment.")
    working_seconds: Mapped[float | None] = column("Time from claim to commit, model and environment included.")


class Block(Base):
    __tablename__ = "blocks"
    __table_args__ = (
        one_of("type", "type", BlockType),
        sa.UniqueConstraint("trace_id", "index"),
        {"comment": "The blocks of the traces, as recorded."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    index: Mapped[int] = column("Position in the trace, from 0, without gaps.")
    tick: Mapped[int] = column("Number of its tick.")
    subagent: Mapped[str] = column("Name of the subagent that wrote it.")
    type: Mapped[str] = column("Its type: orientation, action, ...")
    body: Mapped[str] = column("The text between header and footer, not commented out.")
    rendered: Mapped[str] = column("The block as it stands in the trace.")
    timestamp: Mapped[float] = column("When its writing began, seconds since the epoch.")
    time_remaining: Mapped[float] = column("Seconds left of the time budget then.")
    block_size: Mapped[int | None] = column("Tokens the model was given; null where it did not write the block.")
    bm25_query: Mapped[str | None] = column("The query that the model wrote before it.")
    title: Mapped[str | None] = column("Of an observation.")
    tick_start: Mapped[int | None] = column("Of an orientation: index of the tick's first block.")
    working_directory: Mapped[str | None] = column("Of an orientation.")
    compiles: Mapped[bool] = column("Whether its body is legal Python (always true of text).")
    question: Mapped[str | None] = column("What the evaluator was asked about it.")
    answer: Mapped[bool | None] = column("The answer, drawn once with the model's own probability.")
    probability: Mapped[float | None] = column("Of the drawn answer.")
    ran: Mapped[bool | None] = column(
        "Whether it ran without errors; null: it was not executed. Of a return: whether its caller went on so."
    )
    exception: Mapped[str | None] = column("Class of the exception that ended it.")
    tags: Mapped[list[str]] = column("Tags.", type_=ARRAY(sa.Text))
    score: Mapped[float | None] = column("Raw score: log odds after rewriting, without penalties.")
    reward: Mapped[float | None] = column("Its part of the tick's reward.")
    preference: Mapped[float | None] = column("What its score is corrected by in preference data; null: nothing.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate it was made of.", index=True)
    executed_by: Mapped[int | None] = reference("steps.id", "The step that executed it.", index=True)
    created_at: Mapped[datetime.datetime] = now("When it was recorded.")


class Candidate(Base):
    __tablename__ = "candidates"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Every text the model was sampled for, losers included."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that sampled it.")
    position: Mapped[int] = column("Among the candidates of its round, from 0.")
    block_index: Mapped[int] = column("Index of the block it was sampled for.")
    type: Mapped[str] = column("Type of that block; bm25-query: a query for its header; next-type: a name for it.")
    round: Mapped[int] = column("Of the cascade, from 0; those of a tree search count from 1.")
    depth: Mapped[int | None] = column("Of a tree's node, from 1; null: a whole candidate.")
    parent_id: Mapped[int | None] = reference("candidates.id", "The node that it goes on from.", index=True)
    text: Mapped[str] = column("The body from its beginning: fixed prefix or parent's text, and what was sampled.")
    finish_reason: Mapped[str] = column("stop or length, as the server says.")
    tokens: Mapped[int] = column("Sampled tokens.")
    token_ids: Mapped[list[int] | None] = column(
        "Ids of the sampled tokens, by setting.", type_=Numbers(sa.Integer)
    )
    logprobs: Mapped[list[float] | None] = column(
        "Log-probabilities of the sampled tokens, by setting.", type_=Numbers(REAL)
    )


class ModelRead(Base):
    __tablename__ = "prompts"
    __table_args__ = {
        "comment": "What the model read in a step: blocks 0 and 1, those from first_block to the one to write, "
        "and what no block holds."
    }

    step_id: Mapped[int] = reference("steps.id", "The step.", primary_key=True)
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    server: Mapped[str] = column("Base URL of the server that answered.")
    first_block: Mapped[int] = column("Index of the oldest block in it besides 0 and 1.")
    tokens: Mapped[int | None] = column("Prompt tokens up to the body, as the server counts; null: it can't say.")
    cached: Mapped[int | None] = column("Of these, how many its prefix cache held; null: it does not say.")
    cut: Mapped[dict[str, Any] | None] = json(
        "What was left out as the model's length had no room; null: nothing."
    )
    token_ids: Mapped[list[int] | None] = column(
        "Ids of what no block holds: retrieved blocks, instruction, header; by setting.", type_=Numbers(sa.Integer)
    )


class BlockTokens(Base):
    __tablename__ = "block_tokens"
    __table_args__ = (
        sa.ForeignKeyConstraint(["trace_id", "index"], ["blocks.trace_id", "blocks.index"], ondelete="CASCADE"),
        {"comment": "The tokens of blocks as the model read them, by setting."},
    )

    trace_id: Mapped[int] = column("Its trace.", primary_key=True)
    index: Mapped[int] = column("Its index. The first one begins with the template's opening.", primary_key=True)
    token_ids: Mapped[list[int]] = column("Ids.", type_=Numbers(sa.Integer))


class Penalties(Base):
    __tablename__ = "penalties"
    __table_args__ = {
        "comment": "What linting found in a candidate. Subtracted from its score for selection only."
    }

    candidate_id: Mapped[int] = reference("candidates.id", "The candidate.", primary_key=True)
    compiles: Mapped[bool] = column("Whether it is legal Python.")
    viable: Mapped[bool | None] = column(
        "Of a half-written node: whether it may still become legal; only where not, the search counted a penalty."
    )
    error: Mapped[str | None] = column("The syntax error, where it is not.")
    rewritten: Mapped[str | None] = column("Its legal structure, where that differs from its text.")
    syntax: Mapped[float] = column("Does not compile.")
    extra_elements: Mapped[float] = column("More top-level elements than the shape has.")
    not_a_string: Mapped[float] = column("A prose block that does not begin with a string.")
    code_in_prose: Mapped[float] = column("Code-like text inside a prose block.")
    shape: Mapped[float] = column("A callback block that is not exactly a function and its registration.")
    wrong_name: Mapped[float] = column("Registers another name than the function's.")
    title: Mapped[float] = column("An evaluation whose title is no question, or can't be read.")
    assertions: Mapped[float] = column("Assertions missing, without a question, inside a try, or too many.")
    forbidden_calls: Mapped[float] = column("Calls that do not belong into an action.")
    length_after_debug: Mapped[float] = column("Length beyond 96 tokens straight after a debug block.")


class Score(Base):
    __tablename__ = "scores"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position", "question"),
        {"comment": "Yes/no questions put to the model: a row per text and question, never overwritten."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that asked.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate asked about.", index=True)
    position: Mapped[int] = column("Of the text within the step, from 0.")
    stage: Mapped[str] = column("selection: as sampled; raw: as rewritten; option: asked of the model itself.")
    rubric: Mapped[str] = column("Version of the rubric and its calibration examples.")
    question: Mapped[str] = column("The question.")
    yes: Mapped[float] = column("Probability mass of yes.")
    no: Mapped[float] = column("Probability mass of no.")
    score: Mapped[float | None] = column("Log odds; null where the model gave neither side any mass.")


class Evaluation(Base):
    __tablename__ = "evaluations"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Results of evaluation callbacks, the task's and the tick's."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    tick: Mapped[int] = column("Number of its tick.")
    position: Mapped[int] = column("Among the evaluations of the tick, from 0.")
    scope: Mapped[str] = column("task: bound by the bootstrap; tick: written by the agent.")
    title: Mapped[str] = column("Its title, a question.")
    value: Mapped[Any | None] = json(
        "What it returned: a JSON value, or the repr of what is none. Null on an error."
    )
    error: Mapped[str | None] = column("The exception, where it raised one.")


class Example(Base):
    __tablename__ = "examples"
    __table_args__ = (
        one_of("type", "type", BlockType),
        {"comment": "Good blocks that retrieval is seeded with (weavegen examples load)."},
    )

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of type and body, hexadecimal.", unique=True)
    type: Mapped[str] = column("Type of the block.")
    description: Mapped[str] = column("What it is an example of.")
    question: Mapped[str] = column("The question that it answers well.")
    score: Mapped[float] = column("How well: log odds of yes.")
    body: Mapped[str] = column("The block's body.")
    created_at: Mapped[datetime.datetime] = now("When it was loaded first.")


class Retrieval(Base):
    __tablename__ = "retrievals"
    __table_args__ = (
        sa.UniqueConstraint("step_id"),
        {"comment": "Queries that were run before a block was written, and what they could see."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    query: Mapped[str] = column("The query, with the type restriction of a young trace.")
    before: Mapped[int] = column("Cutoff: only blocks of the trace below this index, which had left the window.")
    least_score: Mapped[float] = column("Hits below this score were dropped.")


class RetrievalHit(Base):
    __tablename__ = "retrieval_hits"
    __table_args__ = (
        sa.UniqueConstraint("retrieval_id", "rank"),
        sa.CheckConstraint("(block_id is null) <> (example_id is null)", name="one_source"),
        {"comment": "What a query found, best first; `used` says what the model was shown."},
    )

    id: Mapped[int] = key()
    retrieval_id: Mapped[int] = reference("retrievals.id", "Its query.")
    rank: Mapped[int] = column("From 1, the best.")
    block_id: Mapped[int | None] = reference("blocks.id", "The block found.", index=True)
    example_id: Mapped[int | None] = reference("examples.id", "Or the example found.", index=True)
    score: Mapped[float] = column("BM25.")
    used: Mapped[bool] = column("Whether it was put into the prompt.")


class Segment(Base):
    __tablename__ = "segments"
    __table_args__ = {"comment": "The index of what traces left behind, in parts of equal size; see retrieval.py."}

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    number: Mapped[int] = column("Position in the trace's index, from 0.", primary_key=True, autoincrement=False)
    end: Mapped[int] = column("Index of the block behind its last one.")
    documents: Mapped[bytes] = column("Ids, lengths in words and types of its blocks.")
    spread: Mapped[bytes] = column("How many words stand in so many blocks, up to its end.")


class Posting(Base):
    __tablename__ = "postings"
    __table_args__ = {"comment": "Where in a segment a word stands."}

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    segment: Mapped[int] = column("Number of its segment.", primary_key=True, autoincrement=False)
    documents: Mapped[int] = column("Indexed blocks of the trace with the word, up to the segment's end.")
    blocks: Mapped[bytes] = column("Positions in the index and times, in pairs.")


class GroundedLabel(Base):
    __tablename__ = "grounded_labels"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Questions that assertions asked, and how they really came out. See blocks.executed_by."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran the assertion.")
    position: Mapped[int] = column("Among the assertions of the step that were reached, from 0.")
    question: Mapped[str] = column("The assertion's message.")
    answer: Mapped[bool] = column("Whether it held.")


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


class Environment(Base):
    __tablename__ = "environments"
    __table_args__ = (
        sa.Index("ix_environments_open", "host", postgresql_where=sa.text("closed_at is null")),
        sa.Index("uq_environments_open", "trace_id", unique=True, postgresql_where=sa.text("closed_at is null")),
        {"comment": "The live Python processes in which traces run their code."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    host: Mapped[str] = column("Host that it runs on; its steps go to the queue execute.<host>.")
    pid: Mapped[int] = column("Process on that host.")
    sandbox: Mapped[str] = column("How it is isolated: bubblewrap or none.")
    started_at: Mapped[datetime.datetime] = now("When it was started.")
    closed_at: Mapped[datetime.datetime | None] = column("When it was stopped, or found dead.")


class Event(Base):
    __tablename__ = "events"
    __table_args__ = {"comment": "The history of a trace, for people: what happened to it besides its blocks."}

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    at: Mapped[datetime.datetime] = now("When.")
    kind: Mapped[str] = column("started, ended, failed, cancelled, tick restarted, ...")
    detail: Mapped[str | None] = column("More, in one line.")
