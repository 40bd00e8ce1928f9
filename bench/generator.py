"""Fills an empty installation's database with a corpus of any size, for benchmarks and documents.

All content is generated: no model wrote it, and no figure in it says anything about a model, a bootstrap or weavegen.
It is realistic in its tables, keys, sizes and frequencies, and in a few relations that questions ask about (traces
learn, larger models do better, the evaluator is overconfident about one question). Prose and code consist of words
drawn by Zipf's law; each bootstrap has words of its own.
"""

import json
import math
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from weavegen.errors import UsageError
from weavegen.trace.blocks import Block, BlockType, Label
from weavegen.trace.render import render_block

T = BlockType
CHUNK = 4_000
"""Number of blocks whose rows are sent at once."""
EPOCH = 1_772_323_200.0
"""The start of the first trace: 2026-03-01, in seconds since the epoch."""
CONFIDENT = "Is this action a simple, correctly written step that carries out what the orientation decided?"
QUESTIONS: dict[str, str] = {
    T.ORIENTATION: "Does this orientation weigh what was observed and settle on one sensible next step?",
    T.ACTION: CONFIDENT,
    T.DEBUG: "Does this debug block find the real cause of the error above?",
    T.BACKTRACK: "Does this backtrack block say what was wrong with the action above?",
    T.EXPECTATION: "Does this expectation name concrete evidence that would show whether the action worked?",
    T.OBSERVATION_INFERENCE: "Is this change of the observation views small, correct and useful?",
    T.EVALUATION: "Does this evaluation check, against the environment, what the expectation says?",
    T.OPTION: "Should the observation views be changed before the next tick?",
}
SLOPES: dict[str, float] = {CONFIDENT: 2.2, QUESTIONS[T.EVALUATION]: 1.0}
"""The factor by which the evaluator exaggerates log odds. At 1 it is calibrated."""
ASSERTED = (
    "Did the request come back with status 200?",
    "Is the new state different from the old one?",
    "Does the file hold what was written?",
    "Is the answer one of the allowed ones?",
    "Was the cell free before the move?",
    "Are fewer than ten items left?",
)
EXCEPTIONS = ("AssertionError", "AttributeError", "KeyError", "TypeError", "ValueError", "OSError", "NameError")
BLAME = {"AssertionError": 0.25, "AttributeError": 1.0}
MODELS = (("sample-8b", -0.5, 95.0), ("sample-24b", 0.1, 48.0), ("sample-70b", 0.6, 21.0))
"""Name, skill in log odds, tokens per second. These models do not exist."""
BOOTSTRAPS = (
    "tictactoe.py", "vigenere.py", "haunted_mansion.py", "mars_colony.py", "conversation.py", "nethack.py",
    "zombie_survival.py", "nano_practice.py", "book_report.py", "reading_comprehension.py", "warehouse.py",
    "log_triage.py", "timetable.py",
)  # fmt: skip
COMMON = """
the of to and a in is that for it as with be by on not this are or from at which have an they you were her all one
so there been if more when will would who we what them some could time into only other new then now two first any
these may like over such our even most state next action tick block board file error value result
"""
SYLLABLES = """
ba be bi bo bra bre ca ce ci co cra da de di do dra fa fe fi fo ga ge gi go gra ha he hi ho ja jo ka ke ki ko la le
li lo ma me mi mo na ne ni no pa pe pi po pra ra re ri ro sa se si so sta ta te ti to tra va ve vi vo za
"""
ENDINGS = ("n", "r", "s", "t", "l", "d", "m", "ck", "ng", "st", "")

COLUMNS: dict[str, str] = {
    "jobs": "id name agent model seed settings version created_at state paused_seconds revision",
    "bootstraps": "id sha256 name source created_at",
    "examples": "id sha256 type description question score body created_at",
    "traces": "id job_id number bootstrap_id params seed status ended_because failure_kind failure returned ticks "
    "blocks bytes server sampled_tokens candidates written created_at started_at finished_at restarts",
    "subagents": "id trace_id name description schema time_budget completed returned",
    "environments": "id trace_id host pid sandbox started_at closed_at",
    "ticks": "id trace_id number subagent deadline run revision paused_seconds first_block repeats clock reward "
    "finished_at",
    "events": "id trace_id at kind detail",
    "steps": "id trace_id tick run ordinal kind label status request failure_kind failure queue claims worker "
    "ready_at send_after claimed_at finished_at model_seconds environment_seconds working_seconds",
    "prompts": "step_id trace_id server first_block tokens cached",
    "candidates": "id trace_id step_id position block_index type round text finish_reason tokens",
    "penalties": "candidate_id compiles error syntax extra_elements not_a_string code_in_prose shape wrong_name "
    "title assertions forbidden_calls length_after_debug",
    "scores": "id trace_id step_id candidate_id position stage rubric question yes no score",
    "blocks": "id trace_id index tick subagent type body rendered timestamp time_remaining block_size bm25_query "
    "title tick_start working_directory compiles question answer probability ran exception tags score reward "
    "preference candidate_id executed_by created_at",
    "evaluations": "id trace_id step_id tick position scope title value error",
    "grounded_labels": "id trace_id step_id position question answer",
    "retrievals": "id trace_id step_id query before least_score",
    "retrieval_hits": "id retrieval_id rank block_id example_id score used",
}
"""The tables that are filled, each after the tables that it refers to."""

TRIGGERS = """
select c.relname, g.tgname from pg_trigger g join pg_class c on c.oid = g.tgrelid
where not g.tgisinternal and g.tgenabled = 'O' and c.relname = any(%s)
"""


def fill(url: str, blocks: int, seed: int = 1) -> None:
    """Fill the empty, migrated database at `url` with a generated corpus of `blocks` blocks.

    Equal seeds give equal rows. The rows are sent by COPY in one transaction. Materialised views are not refreshed (run
    weavegen refresh). Some traces are queued and one is running, so no workers should be up. Raises UsageError if the
    database has jobs.
    """
    with psycopg.connect(url) as conn:
        if conn.execute("select exists (select from jobs)").fetchone() != (False,):
            raise UsageError("the database is not empty: give one without jobs")
        superuser = conn.execute("select rolsuper from pg_roles where rolname = current_user").fetchone()
        triggers: list[tuple[str, str]] = []
        if superuser == (True,):
            # Foreign keys need no check for each row: the rows are right by construction. Other triggers run.
            conn.execute("set local session_replication_role = replica")
            triggers = conn.execute(TRIGGERS, [list(COLUMNS)]).fetchall()
            set_triggers(conn, triggers, "enable always")
        # Tables that are emptied in the same transaction need no write-ahead log, and their rows can be frozen at
        # once.
        names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
        conn.execute(sql.SQL("truncate {} cascade").format(names))
        with ThreadPoolExecutor(1) as sender:
            sent: list[Future[None]] = []

            def send(rows: dict[str, list[str]]) -> None:
                if sent:
                    sent.pop().result()
                sent.append(sender.submit(copy, conn, rows))

            corpus = Corpus(blocks, seed, send)
            corpus.write()
            send(corpus.rows)
            sent.pop().result()
        set_triggers(conn, triggers, "enable")
        for table, last in corpus.last.items():
            if table not in ("prompts", "penalties"):
                conn.execute("select setval(pg_get_serial_sequence(%s, 'id'), %s)", [table, max(1, last)])
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("analyze")


def set_triggers(conn: psycopg.Connection[Any], triggers: list[tuple[str, str]], how: str) -> None:
    """Set when triggers, given as (table, name), fire."""
    for table, name in triggers:
        statement = sql.SQL("alter table {} {} trigger {}")
        conn.execute(statement.format(sql.Identifier(table), sql.SQL(how), sql.Identifier(name)))


def copy(conn: psycopg.Connection[Any], rows: dict[str, list[str]]) -> None:
    """Send rows in COPY's text format, by table."""
    for table, names in COLUMNS.items():
        if lines := rows.get(table):
            columns = sql.SQL(", ").join(map(sql.Identifier, names.split()))
            statement = sql.SQL("copy {} ({}) from stdin with (freeze)").format(sql.Identifier(table), columns)
            with conn.cursor().copy(statement) as into:
                into.write("".join(lines))


# ---------------------------------------------------------------------------------------------- words


class Words:
    """A stream of words of one subject: two thirds common words, one third words of the subject."""

    def __init__(self, seed: int, vocabulary: NDArray[np.object_], subject: int | None, size: int) -> None:
        self.dice = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, subject or 0, size])))
        self.vocabulary = vocabulary
        self.size = size
        table = zipf(len(vocabulary), 1 << 20 if size > 100_000 else 1 << 16)
        if subject is not None:
            own = np.argsort(self.dice.random(len(vocabulary)))[: min(3_000, len(vocabulary) // 4)]
            own = own.astype(np.int32)
            table = np.concatenate([table, own[zipf(len(own), len(table) // 2)]])
        self.table = table
        self.buffer: list[str] = []
        self.at = 0

    def take(self, n: int) -> list[str]:
        """The next `n` words."""
        if self.at + n > len(self.buffer):
            drawn = (self.dice.random(self.size) * len(self.table)).astype(np.int64)
            self.buffer, self.at = self.vocabulary[self.table[drawn]].tolist(), 0
        self.at += n
        return self.buffer[self.at - n : self.at]


def zipf(n: int, entries: int) -> NDArray[np.int32]:
    """A table of ranks below n. An evenly drawn position gives a rank by Zipf's law."""
    weights = 1.0 / (np.arange(n) + 2.7)
    edges = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(edges, (np.arange(entries) + 0.5) / entries), n - 1).astype(np.int32)


def vocabulary(size: int, dice: random.Random) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """`size` different words, the most frequent first: words, identifiers, numbers; and the identifiers alone."""
    words = COMMON.split()
    syllables = SYLLABLES.split()
    seen = set(words)
    while len(words) < size:
        kind = dice.random()
        word = spell(syllables, dice)
        if kind < 0.3:
            word = f"{word}_{spell(syllables, dice)}"
        elif kind < 0.36:
            word = str(int(10 ** (1 + 4 * dice.random())))
        if word not in seen:
            seen.add(word)
            words.append(word)
    identifiers = [word for word in words if "_" in word]
    return np.array(words, dtype=object), np.array(identifiers, dtype=object)


def spell(syllables: list[str], dice: random.Random) -> str:
    """An invented word."""
    number = 2 + int(2.2 * dice.random())
    parts = [syllables[int(dice.random() * len(syllables))] for _ in range(number)]
    return "".join(parts) + ENDINGS[int(dice.random() * len(ENDINGS))]


def sentences(words: list[str]) -> str:
    """Prose: sentences of nine to fifteen words."""
    made, at = [], 0
    while at < len(words):
        length = 9 + len(words[at]) % 7
        made.append(" ".join(words[at : at + length]).capitalize())
        at += length
    return ". ".join(made) + "."


def function(prefix: str, words: list[str], names: list[str], register: str) -> str:
    """A callback block of these words and identifiers (at least seven). It is legal Python that should not be run."""
    title, note = " ".join(words[:5]), " ".join(words[5:14])
    lines = [f"def {prefix}_{names[0]}(self):", f"    # {note}"]
    for a, b, c in zip(names[1::3], names[2::3], names[3::3], strict=False):
        lines.append(f'    {a} = self.tools["editor"].find({b!r}, limit={len(b)})')
        lines.append(f"    {c} = [line for line in {a} if {b!r} in line]  # {b} {c}")
    rest = words[14:]
    lines += (f'    self.note("{" ".join(rest[at : at + 9])}")' for at in range(0, len(rest), 9))
    lines.append(f'    assert {names[3]}, "Is there any {names[3]} left?"')
    lines.append(f'self.{register}("{title}", {prefix}_{names[0]})')
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------- values


def text(value: str) -> str:
    """A text in the format of COPY."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def null(value: object) -> object:
    """A value that may be None, in the format of COPY."""
    return "\\N" if value is None else value


def flag(value: bool | None) -> str:
    return "\\N" if value is None else "t" if value else "f"


@lru_cache(maxsize=64)  # the end of a step is the start of the next
def stamp(at: float) -> str:
    """A time in the format of COPY, to the millisecond."""
    seconds, rest = divmod(round(at * 1000), 1000)
    return f"{second(seconds)}.{rest:03d}+00"


@lru_cache(maxsize=256)
def second(at: int) -> str:
    """A second since the epoch as date and time of day."""
    days, rest = divmod(at, 86_400)
    return f"{date(days)} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


@lru_cache
def date(days: int) -> str:
    """The date this many days after 1970-01-01."""
    return str(np.datetime64(days, "D"))


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


# ---------------------------------------------------------------------------------------------- traces


class Full(Exception):
    """The corpus has as many blocks as requested."""


@dataclass
class Trace:
    """A trace while it is being written."""

    id: int
    job: int
    number: int
    bootstrap: int
    agent: str
    skill: float
    speed: float
    length: int
    """Approximate number of blocks of the finished trace."""
    words: Words
    own: list[str]
    """Words that are frequent only in this trace."""
    now: float
    started: float
    server: str
    status: str = "running"
    because: str | None = None
    failure: tuple[str, str] | None = None
    tick: int = 0
    ticks: int = 0
    """Number of finished ticks, without the bootstrap's."""
    tick_first: int = 0
    ordinal: int = 0
    blocks: int = 0
    bytes: int = 0
    sampled: int = 0
    candidates: int = 0
    written: int = 0
    restarts: int = 0
    repeats: int = 0
    looping: int = 0
    """Number of ticks in which it still repeats itself."""
    helped: float = 0.0
    """The advantage of this tick from retrieved blocks, in log odds."""
    recallable: list[tuple[int, int, bool]] = field(default_factory=list)
    """(index, block id, whether it ran) of the blocks that can be retrieved."""


@dataclass
class Draft:
    """The content of a block without its header. Its share of the reward is known at the end of the tick."""

    type: BlockType
    body: str
    began: float
    size: int | None = None
    query: str | None = None
    title: str | None = None
    compiles: bool = True
    yes: float | None = None
    ran: bool | None = None
    exception: str | None = None
    tags: tuple[str, ...] = ()
    score: float | None = None
    candidate: int | None = None
    executed: int | None = None
    reward: float | None = None
    preference: float | None = None


class Corpus:
    """The rows of all tables, sent in chunks."""

    def __init__(self, blocks: int, seed: int, send: Callable[[dict[str, list[str]]], None]) -> None:
        self.wanted = blocks
        self.seed = seed
        self.send = send
        self.dice = random.Random(seed)
        self.random = self.dice.random
        self.rows: dict[str, list[str]] = {name: [] for name in COLUMNS}
        self.last = dict.fromkeys(COLUMNS, 0)
        self.longest = min(3_000, max(40, blocks // 8))
        words, names = vocabulary(min(200_000, max(5_000, blocks)), self.dice)
        size = min(200_000, max(20_000, blocks * 10))
        self.vocabulary = words
        self.subjects = [Words(seed, words, number, size) for number in range(len(BOOTSTRAPS))]
        self.names = Words(seed, names, None, size)
        self.jobs: list[tuple[int, str, list[int]]] = []
        self.numbers: list[int] = []
        self.at = 0
        """Number of blocks written."""
        self.sent = 0
        self.tick_blocks: list[tuple[Trace, Draft]] = []

    # ------------------------------------------------------------------------------------------ rows

    def add(self, table: str, *values: object) -> int:
        """Add a row that begins with its id. Returns the id."""
        self.last[table] = id = self.last[table] + 1
        self.rows[table].append("\t".join(map(str, (id, *values))) + "\n")
        return id

    def step(
        self,
        t: Trace,
        kind: str,
        what: str,
        request: str,
        *,
        model: float = 0.0,
        environment: float = 0.0,
        failed: tuple[str, str] | None = None,
    ) -> int:
        """Add a step of the journal, with its duration: done, or failed as (kind, reason)."""
        self.last["steps"] = id = self.last["steps"] + 1
        waited, own = -0.15 * math.log(1 - self.random()), 0.004 + 0.01 * self.random()
        working = model + environment + own
        begin, claimed = stamp(t.now), stamp(t.now + waited)
        t.now += waited + working
        claims = 1 if self.random() < 0.99 else 2
        status, failure = "done", "\\N\t\\N" if claims == 1 else "\\N\tthe connection was lost"
        if failed is not None:
            status, failure = "failed", "\t".join(failed)
        queue = "execute.host-1" if kind == "execute" else "control" if kind == "retrieve" else kind
        seconds = f"{model:.4f}" if model else "\\N"
        outside = f"{environment:.4f}" if environment else "\\N"
        run = int(t.restarts > 0 and t.tick == 3)
        self.rows["steps"].append(
            f"{id}\t{t.id}\t{t.tick}\t{run}\t{t.ordinal}\t{kind}\ttrace {t.id} tick {t.tick} {what}\t{status}\t"
            f"{request}\t{failure}\t{queue}\t{claims}\thost-1:{1000 + id % 16}\t{begin}\t{begin}\t{claimed}\t"
            f"{stamp(t.now)}\t{seconds}\t{outside}\t{working:.4f}\n"
        )
        t.ordinal += 1
        if model:
            tokens = min(30_000, 2_500 + 260 * min(t.blocks, 60))
            cached = int(tokens * (0.96 if self.random() < 0.97 else 0.4))
            first = max(2, t.blocks - 60)
            self.rows["prompts"].append(f"{id}\t{t.id}\t{t.server}\t{first}\t{tokens}\t{cached}\n")
        return id

    # ----------------------------------------------------------------------------------- the whole corpus

    def write(self) -> None:
        """Write the whole corpus."""
        self.setting()
        started = 0.0
        while self.at < self.wanted:
            started += 90.0 * self.random()
            self.trace(EPOCH + started)
        for number, (job, _, bootstraps) in enumerate(self.jobs[-2:]):
            for _ in range(1 + number):
                self.numbers[job - 1] += 1
                seed = int(self.random() * 2**31)
                self.last["traces"] += 1
                self.rows["traces"].append(
                    f"{self.last['traces']}\t{job}\t{self.numbers[job - 1]}\t{bootstraps[0] + 1}\t{{}}\t{seed}\t"
                    f"queued\t\\N\t\\N\t\\N\t\\N\t0\t0\t0\t\\N\t0\t0\t0\t{stamp(EPOCH + started)}\t\\N\t\\N\t0\n"
                )

    def setting(self) -> None:
        """Write jobs, bootstraps and examples."""
        for number, name in enumerate(BOOTSTRAPS):
            source = f'"""The first tick of {name}: made up."""\n' + sentences(self.subjects[number].take(60))
            source = "\n".join(f"# {line}" for line in source.split("\n"))
            self.add("bootstraps", f"{number:064x}", name, text(source), stamp(EPOCH - 3600))
        for number in range(36):
            type = (T.ORIENTATION, T.ACTION, T.EVALUATION, T.DEBUG)[number % 4]
            body = sentences(self.subjects[number % len(BOOTSTRAPS)].take(60))
            score = f"{1 + 3 * self.random():.4f}"
            about = ("examples", f"{number:064x}", type, f"made up, number {number}", QUESTIONS[type], score)
            self.add(*about, text(body), stamp(EPOCH - 3600))
        count = max(6, min(60, self.wanted // 25_000))
        for number in range(count):
            model = number % len(MODELS)
            first = int(self.random() * len(BOOTSTRAPS)) if count > len(BOOTSTRAPS) else number // 3 * 2
            bootstraps = [first % len(BOOTSTRAPS), (first + 1) % len(BOOTSTRAPS)]
            agent = "planning" if number % 10 == 7 else "weave"
            name = f"{BOOTSTRAPS[bootstraps[0]].removesuffix('.py')}-{MODELS[model][0]}"
            settings = {"ticks": 400, "tokens": "none"} | ({"temperature": 0.8} if number % 4 == 1 else {})
            values = (name, agent, MODELS[model][0], 100 + number, json.dumps(settings), "0.6.0")
            job = self.add("jobs", *values, stamp(EPOCH - 60 * (count - number)), "active", 0, 0)
            self.jobs.append((job, agent, bootstraps))
            self.numbers.append(0)

    def trace(self, at: float) -> None:
        """Write a trace from its bootstrap to its end."""
        job, agent, bootstraps = self.jobs[int(self.random() * len(self.jobs))]
        bootstrap = bootstraps[int(self.random() * 2)]
        _, skill, speed = MODELS[(job - 1) % len(MODELS)]
        self.numbers[job - 1] += 1
        self.last["traces"] = id = self.last["traces"] + 1
        words = self.subjects[bootstrap]
        rare = len(self.vocabulary) // 10
        t = Trace(
            *(id, job, self.numbers[job - 1], bootstrap, agent),
            skill=skill - 0.12 * (bootstrap % 7) + 0.4 * (self.random() + self.random() - 1),
            speed=speed,
            length=int(30 * math.exp(math.log(self.longest / 30) * self.random())),
            words=words,
            own=[str(self.vocabulary[rare + int(self.random() * 9 * rare)]) for _ in range(24)],
            now=at,
            started=at,
            server=f"http://model-{1 + id % 4}:8000/v1",
            restarts=int(self.random() < 0.06),
        )
        # 94 % end, 4 % fail somewhere, 2 % are cancelled there.
        fate = self.random()
        stop = t.length if fate < 0.94 else int(t.length * self.random())
        self.add("events", id, stamp(at), "started", "\\N")
        opened = stamp(at + 1)
        try:
            self.bootstrap(t)
            while t.blocks < stop:
                self.tick(t)
            t.status = "ended" if fate < 0.94 else "failed" if fate < 0.98 else "cancelled"
            if t.status == "failed":
                self.fail(t, fate < 0.965)
        except Full:
            self.end_tick(t, None)
        self.finish(t, opened, fate)

    def finish(self, t: Trace, opened: str, fate: float) -> None:
        """Write the rows of the trace itself."""
        running = t.status == "running"
        if t.status == "ended":
            t.because = "returned" if self.random() < 0.55 else ("ticks", "blocks", "time")[int(3 * self.random())]
            self.add("events", t.id, stamp(t.now), "ended", t.because)
        elif t.status == "failed":
            self.add("events", t.id, stamp(t.now), "failed", t.failure[1] if t.failure else "\\N")
        elif t.status == "cancelled":
            self.add("events", t.id, stamp(t.now), "cancelled", "\\N")
        over = "\\N" if running else stamp(t.now)
        outcome = ("won", "drawn", "lost")[min(2, int(3 * self.random() / (1 + max(0.0, t.skill))))]
        returned = json.dumps({"result": outcome}) if t.because == "returned" else "\\N"
        seed = int(self.random() * 2**31)
        kind, failure = t.failure or (None, None)
        self.rows["traces"].append(
            f"{t.id}\t{t.job}\t{t.number}\t{t.bootstrap + 1}\t{{}}\t{seed}\t{t.status}\t{null(t.because)}\t"
            f"{null(kind)}\t{null(failure)}\t{returned}\t{t.ticks}\t{t.blocks}\t{t.bytes}\t{t.server}\t"
            f"{t.sampled}\t{t.candidates}\t{t.written}\t{stamp(t.started - 30)}\t{stamp(t.started)}\t{over}\t"
            f"{t.restarts}\n"
        )
        about = sentences(t.words.take(14))
        self.add("subagents", t.id, "main", about, "{}", 360, flag(t.because == "returned"), returned)
        self.add("environments", t.id, "host-1", 2000 + t.id % 30_000, "bubblewrap", opened, over)

    def fail(self, t: Trace, model: bool) -> None:
        """Begin a tick with a step that fails."""
        self.begin_tick(t)
        if model:
            t.failure = "model", "the model server refused the prompt: it is too long"
            self.step(t, "sample", "orientation round 0 n=4", '{"n": 4}', failed=t.failure)
        else:
            t.failure = "environment", "the environment died 3 times in the same step"
            self.step(t, "execute", "begin", '{"op": "begin"}', failed=t.failure)
        self.end_tick(t, None)

    # ------------------------------------------------------------------------------------------ a tick

    def begin_tick(self, t: Trace) -> None:
        t.tick_first, t.ordinal, t.helped = t.blocks, 0, 0.0
        self.clock = t.now
        self.tick_blocks = []
        if t.restarts and t.tick == 3:
            self.add("events", t.id, stamp(t.now), "tick restarted", "weavegen was upgraded")

    def end_tick(self, t: Trace, reward: float | None) -> None:
        """Distribute the reward backwards to the tick's blocks and write them. None: the tick is still running."""
        if reward is not None:
            share = reward
            for _, draft in reversed(self.tick_blocks):
                if draft.type in (T.ORIENTATION, T.DEBUG, T.BACKTRACK, T.ACTION):
                    draft.reward = share
                    share *= 0.8
            t.ticks += t.tick > 0
        first = t.tick_first
        for number, (_, draft) in enumerate(self.tick_blocks):
            self.block(t, draft, first + number)
        deadline = t.started + 21_600
        run = int(t.restarts > 0 and t.tick == 3)
        value = "\\N" if reward is None else f"{reward:.4f}"
        over = "\\N" if reward is None else stamp(t.now)
        row = (t.tick, "main", f"{deadline:.3f}", run, 0, 0, first, t.repeats, f"{self.clock:.3f}", value, over)
        self.add("ticks", t.id, *row)
        self.tick_blocks = []
        t.tick += 1
        if self.at - self.sent >= CHUNK:
            self.sent = self.at
            self.send(self.rows)
            self.rows = {name: [] for name in COLUMNS}

    def record(self, t: Trace, draft: Draft) -> None:
        """Add the trace's next block. Raises Full if the corpus has enough blocks."""
        if self.at >= self.wanted:
            raise Full
        self.at += 1
        self.tick_blocks.append((t, draft))
        t.blocks += 1

    def block(self, t: Trace, d: Draft, index: int) -> None:
        """Write the row of a recorded block, rendered as weavegen renders it."""
        self.last["blocks"] = id = self.last["blocks"] + 1
        question, label = None, None
        if d.yes is not None:
            question = QUESTIONS[d.type]
            answer = self.random() < d.yes
            label = Label(question, answer, round(d.yes if answer else 1 - d.yes, 5))
        began = round(d.began, 3)
        left = round(t.started + 21_600 - began, 3)
        start = t.tick_first if d.type is T.ORIENTATION else None
        folder = "/app" if d.type is T.ORIENTATION else None
        rendered = render_block(
            Block(
                type=d.type, body=d.body, index=index, timestamp=began, time_remaining=left, block_size=d.size,
                bm25_query=d.query, title=d.title, tick_start=start, working_directory=folder, compiles=d.compiles,
                label=label, ran=d.ran, tags=d.tags,
            )
        )  # fmt: skip
        t.bytes += len(rendered.encode())
        if d.type in (T.ORIENTATION, T.ACTION, T.EVALUATION, T.DEBUG, T.ERROR):
            t.recallable.append((index, id, d.ran is True))
        tags = "{" + ",".join(d.tags) + "}"
        drawn = f"{flag(label.answer)}\t{label.probability}" if label else "\\N\t\\N"
        self.rows["blocks"].append(
            f"{id}\t{t.id}\t{index}\t{t.tick}\tmain\t{d.type}\t{text(d.body)}\t{text(rendered)}\t{began}\t{left}\t"
            f"{null(d.size)}\t{null(d.query)}\t{null(d.title)}\t{null(start)}\t{null(folder)}\t{flag(d.compiles)}\t"
            f"{null(question)}\t{drawn}\t{flag(d.ran)}\t{null(d.exception)}\t{tags}\t{rounded(d.score)}\t"
            f"{rounded(d.reward)}\t{rounded(d.preference)}\t{null(d.candidate)}\t{null(d.executed)}\t{stamp(t.now)}\n"
        )

    def bootstrap(self, t: Trace) -> None:
        """Write tick 0: the framework's text, the bootstrap and its outcome."""
        self.begin_tick(t)
        done = self.step(t, "execute", "bootstrap", '{"op": "bootstrap"}', environment=0.4 + self.random())
        program = f'"""The framework, as the model reads it: made up."""\n# {" ".join(t.words.take(180))}'
        self.record(t, Draft(T.GENESIS, program, t.now))
        source = f"# {t.bootstrap}: {' '.join(t.words.take(80))}"
        self.record(t, Draft(T.BOOTSTRAP, source, t.now, ran=True, executed=done))
        self.evaluate(t, 0.5)
        self.record(t, Draft(T.OUTCOME, sentences(t.words.take(20)), t.now))
        self.end_tick(t, 0.0)

    def tick(self, t: Trace) -> None:
        """Write one tick of the agent."""
        random = self.random
        self.begin_tick(t)
        if t.looping:
            t.looping, t.repeats = t.looping - 1, t.repeats + 1
        else:
            t.repeats = 0
            if random() < 0.012:
                t.looping = 2 + int(6 * random())
        self.step(t, "execute", "begin", '{"op": "begin"}', environment=0.05 + 0.3 * random())
        self.record(t, Draft(T.TASK_REMINDER, sentences(t.words.take(40)), t.now))
        if random() < 0.03:
            failed = "OSError" if random() < 0.7 else "KeyError"
            self.record(t, Draft(T.ERROR, f"{failed}: {' '.join(t.words.take(12))}", t.now))
        for number in range(1 + int(random() < 0.4)):
            body = self.passage(t, 40, 150)
            title = f"{BOOTSTRAPS[t.bootstrap].removesuffix('.py')}-{number + 1}"
            self.record(t, Draft(T.OBSERVATION, body, t.now, title=title))
        if t.repeats >= 3:
            loop = f"The last {t.repeats} ticks did the same and came out the same."
            self.record(t, Draft(T.ERROR, loop, t.now, tags=("doom-loop",)))
        query = self.recall(t)
        orientation = self.prose(t, T.ORIENTATION, 60, 190, query)
        chance = 0.2 + t.skill + 1.6 * (1 - math.exp(-t.tick / 10)) + t.helped - 1.5 * (t.repeats > 0)
        worked, actions, reasons = False, 0, [orientation]
        while not worked and actions < 3:
            actions += 1
            action = self.callback(t, T.ACTION, chance)
            worked = action.ran is True
            for reason in reasons:
                reason.preference = gain(reason.score or 0.0) if worked else -0.1
            if worked:
                break
            kind = action.exception or "SyntaxError"
            self.record(t, Draft(T.ERROR, f"{kind}: " + sentences(t.words.take(30)), t.now))
            if actions < 3:
                reasons = [self.prose(t, T.DEBUG, 30, 90)]
                chance += 0.3
        if worked:
            self.prose(t, T.EXPECTATION, 30, 90)
            self.option(t)
            check = self.callback(t, T.EVALUATION, chance + 1.2)
            if not check.ran:
                error = f"{check.exception or 'SyntaxError'}: " + sentences(t.words.take(25))
                self.record(t, Draft(T.ERROR, error, t.now))
        true, of = self.evaluate(t, sigmoid(chance) if worked else 0.15)
        self.record(t, Draft(T.OUTCOME, sentences(t.words.take(24)), t.now))
        self.end_tick(t, max(0.0, 0.5 * true / of - 0.1 * actions))

    def passage(self, t: Trace, least: int, most: int) -> str:
        """Prose of `least` to `most` words, a few of them the trace's own."""
        words = t.words.take(least + int((most - least) * self.random() ** 1.5))
        for place in range(5, len(words), 23):
            words[place] = t.own[(place + t.tick) % len(t.own)]
        return sentences(words)

    def prose(self, t: Trace, type: BlockType, least: int, most: int, query: str | None = None) -> Draft:
        """Write and record a block of reasoning."""
        draft = self.sample(t, type, f'"""{self.passage(t, least, most)}"""', 0.97, query)
        self.record(t, draft)
        return draft

    def callback(self, t: Trace, type: BlockType, chance: float) -> Draft:
        """Write, execute and record an action or an evaluation."""
        random = self.random
        prefix, register = ("action", "add_action") if type is T.ACTION else ("eval", "add_evaluation")
        words = t.words.take(30 + int(70 * random() ** 1.5))
        for place in range(7, len(words), 17):
            words[place] = t.own[(place + t.tick) % len(t.own)]
        body = function(prefix, words, self.names.take(7 + 3 * int(4 * random())), register)
        runs = sigmoid(chance + 0.8 * (random() + random() - 1))
        draft = self.sample(t, type, body, runs)
        if not draft.compiles:
            draft.preference = -0.5
            self.record(t, draft)
            return draft
        done = self.step(t, "execute", f"run {type}", '{"op": "run"}', environment=-0.4 * math.log(1 - random()))
        draft.executed, draft.ran = done, random() < runs
        if not draft.ran:
            draft.exception = EXCEPTIONS[int(len(EXCEPTIONS) * random() ** 1.8)]
            draft.preference = -BLAME.get(draft.exception, 0.5)
        if type is T.ACTION:
            for position in range(int(3 * random())):
                held = draft.ran or random() < 0.5
                question = ASSERTED[int(len(ASSERTED) * random() ** 1.4)]
                self.add("grounded_labels", t.id, done, position, question, flag(held))
        self.record(t, draft)
        return draft

    def option(self, t: Trace) -> None:
        """Write the question whether views should change, and sometimes the change."""
        yes = sigmoid(-2.0 + 1.5 * (self.random() - 0.5))
        step = self.step(t, "score", "option option", '{"kind": "score"}', model=0.08)
        self.score(t, step, None, 0, "option", QUESTIONS[T.OPTION], yes)
        self.record(t, Draft(T.OPTION, "", t.now, yes=yes))
        if self.random() < yes:
            view = self.names.take(1)[0]
            body = f'def view(self):\n    return self.{view}\nself.add_observation_view("{view}", view)'
            draft = self.sample(t, T.OBSERVATION_INFERENCE, body, 0.9)
            draft.executed = self.step(t, "execute", "run view", '{"op": "run"}', environment=0.02)
            draft.ran = draft.compiles or None
            self.record(t, draft)

    def evaluate(self, t: Trace, chance: float) -> tuple[int, int]:
        """Write the evaluations of the task and of the tick. Returns how many are true, and how many there are."""
        step = self.step(t, "execute", "evaluate", '{"op": "evaluate"}', environment=0.1 + 0.2 * self.random())
        number = 2 + int(t.tick > 0)
        true = 0
        for position in range(number):
            scope, which = ("task", position) if position < 2 else ("tick", 2 + t.tick % 4)
            title = f"Is goal {which + 1} of {BOOTSTRAPS[t.bootstrap].removesuffix('.py')} reached?"
            if self.random() < 0.02:
                value, error = "\\N", "KeyError: 'state'"
            else:
                held = self.random() < chance
                true += held
                value, error = ("true" if held else "false"), "\\N"
            self.add("evaluations", t.id, step, t.tick, position, scope, title, value, error)
        return true, number

    def recall(self, t: Trace) -> str:
        """Write the retrieval before an orientation. Returns its query."""
        query = f"+{t.own[t.tick % len(t.own)]} {' '.join(t.words.take(11))}"
        self.step(t, "sample", "bm25-query round 0 n=8", '{"n": 8}', model=0.4)
        step = self.step(t, "retrieve", "", '{"kind": "retrieve"}')
        before = max(0, t.blocks - 60)
        retrieval = self.add("retrievals", t.id, step, query, before, 2.0)
        score = 6 + 14 * self.random()
        past = [earlier for earlier in t.recallable[-400:] if earlier[0] < before] if before else []
        for rank in range(1, 2 + int(7 * self.random())):
            ran = False
            block, example = "\\N", "\\N"
            if past and self.random() < 0.85:
                _, id, ran = past[int(len(past) * self.random())]
                block = str(id)
            else:
                example = str(1 + int(36 * self.random() ** 2))
                ran = int(example) < 8
            self.add("retrieval_hits", retrieval, rank, block, example, f"{score:.4f}", flag(rank <= 3))
            t.helped += 0.25 * (ran and rank <= 3)
            score = max(2.0, score * (0.75 + 0.2 * self.random()))
        return query

    # ------------------------------------------------------------------------------------------ candidates

    def sample(self, t: Trace, type: BlockType, body: str, good: float, query: str | None = None) -> Draft:
        """Write candidates for a block by the cascade, and choose one.

        `good` is the real probability that it is good.
        """
        random = self.random
        began = t.now
        question = QUESTIONS[type]
        # The evaluator's log odds: the true ones, exaggerated, plus noise.
        truth = math.log(good / (1 - good))
        odds = SLOPES.get(question, 1.3) * truth + 1.2 * (random() + random() - 1)
        dice = random()
        rounds = (4,) if dice < 0.93 else (4, 16) if dice < 0.99 else (4, 16, 64)
        tokens = 20 + len(body) // 4
        compiles = random() > 0.015
        chosen = 0
        own, all, name = self.rows["candidates"], self.last, str(type)
        penalties, code = self.rows["penalties"], type in (T.ACTION, T.EVALUATION)
        for round, n in enumerate(rounds):
            seconds = tokens / t.speed * (1 + n / 40)
            step = self.step(t, "sample", f"{name} round {round} n={n}", f'{{"n": {n}}}', model=seconds)
            best = int(n * random())
            scores = []
            short = t.words.take(12 * n)
            for position in range(n):
                all["candidates"] = id = all["candidates"] + 1
                is_chosen = position == best and round == len(rounds) - 1
                if is_chosen:
                    chosen, written, length, legal, value = id, text(body), tokens, compiles, odds
                else:
                    words = " ".join(short[12 * position : 12 * position + 12])
                    written = f'def action_x(self):\\n    self.note("{words}")' if code else f'"""{words}"""'
                    length, legal = 20 + int(tokens * random()), random() > 0.08
                    value = odds - 2.5 * random() ** 2
                finish = "length" if random() < 0.02 else "stop"
                own.append(
                    f"{id}\t{t.id}\t{step}\t{position}\t{t.blocks}\t{name}\t{round}\t{written}\t{finish}\t{length}\n"
                )
                t.sampled += length
                scores.append((id, sigmoid(value)))
                error, syntax = ("\\N", 0) if legal else ("invalid syntax (line 3)", 2)
                shape = 1 if code and random() < 0.06 else 0
                asserts = 0.5 if code and random() < 0.25 else 0
                calls = 0.3 if code and random() < 0.05 else 0
                prose = 0.02 if not code and random() < 0.1 else 0
                penalties.append(
                    f"{id}\t{flag(legal)}\t{error}\t{syntax}\t0\t0\t{prose}\t{shape}\t0\t0\t{asserts}\t{calls}\t0\n"
                )
            t.candidates += n
            self.step(t, "lint", name, '{"kind": "lint"}')
            about = self.step(t, "score", f"{name} candidates", '{"kind": "score"}', model=0.05 + 0.012 * n)
            for position, (id, yes) in enumerate(scores):
                self.score(t, about, id, position, "selection", question, yes)
        if random() < 0.2:
            about = self.step(t, "score", f"{name} rewritten", '{"kind": "score"}', model=0.06)
            self.score(t, about, chosen, 0, "raw", question, sigmoid(odds))
        t.written += 1
        return Draft(
            type, body, began, 768, query, compiles=compiles, yes=sigmoid(odds), candidate=chosen,
            score=odds - 2 * (not compiles),
        )  # fmt: skip

    def score(
        self, t: Trace, step: int, candidate: int | None, position: int, stage: str, question: str, yes: float
    ) -> None:
        """Write a question to the model. 2 % of the mass goes to neither answer."""
        self.last["scores"] = id = self.last["scores"] + 1
        yes = min(max(yes, 1e-4), 1 - 1e-4)
        odds = math.log(yes / (1 - yes))
        self.rows["scores"].append(
            f"{id}\t{t.id}\t{step}\t{null(candidate)}\t{position}\t{stage}\tmade-up\t{question}\t"
            f"{0.98 * yes:.5f}\t{0.98 * (1 - yes):.5f}\t{odds:.4f}\n"
        )


def rounded(value: float | None) -> str:
    return "\\N" if value is None else f"{value:.4f}"


def gain(score: float) -> float:
    """The reward of reasoning before an action that ran."""
    return 0.2 if score < 2 else 0.1 if score < 3 else 0.01 if score < 4 else 0.001 if score < 5 else 0.0
