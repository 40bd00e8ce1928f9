"""SQL on a million blocks: how long a user waits for the answer to each question of docs/corpus.md.

The corpus is generated (bench/generator.py). The database is the embedded one with its usual settings. For each
question, the query and its plan are saved to a file in bench/results/explain/.
"""

import os
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from rich.console import Console

from bench.bars import Figure, table
from bench.generator import fill
from bench.installation import home
from tests.support.sample_corpus import Question, questions
from weavegen import config
from weavegen.database import Statement
from weavegen.services import postgres, schema
from weavegen.store import urls
from weavegen.store.session import pooled
from weavegen.store.views import refresh as refresh_views

BLOCKS = 1_000_000
WAIT = 1000.0
"""The longest time in milliseconds that a user should wait for an answer."""
REPEATS = 3
PLANS = Path(__file__).parent / "results" / "explain"


def run(console: Console) -> list[Figure]:
    with database() as url:
        began = time.perf_counter()
        fill(url, BLOCKS)
        seconds = time.perf_counter() - began
        load = f"{os.getloadavg()[0]:.1f} processes ran or waited on {os.cpu_count()} cores"
        console.print(f"{BLOCKS:,} made-up blocks and what belongs to them: {seconds:.0f} s; {load}")
        return [
            Figure("blocks generated and inserted a second", BLOCKS / seconds, "blocks"),
            *refreshed(console, url),
            *asked(console, url),
        ]


@contextmanager
def database() -> Iterator[str]:
    """The embedded PostgreSQL in a folder of its own, with an empty database.

    There are no workers, which would start traces.
    """
    before = os.environ.get("WEAVEGEN_HOME")
    with home() as folder:
        os.environ["WEAVEGEN_HOME"] = str(folder)
        settings = config.load()
        try:
            postgres.start(settings)
            url = urls.database_url(settings)
            schema.upgrade(url)
            yield url
        finally:
            postgres.stop(settings)
            os.environ.pop("WEAVEGEN_HOME")
            if before is not None:
                os.environ["WEAVEGEN_HOME"] = before


def refreshed(console: Console, url: str) -> list[Figure]:
    """How long a refresh of the materialised views takes: the first, and another with little new data."""
    db = pooled(url)
    with db.connect() as conn:
        first, again = ({refresh.view: refresh for refresh in refresh_views(conn)} for _ in range(2))
        size = Statement("select pg_total_relation_size(cast(:name as regclass))")
        rows = [
            (
                name,
                f"{refresh.rows:,}",
                refresh.seconds,
                again[name].seconds,
                conn.execute(size, {"name": name}).scalar_one() / 1e6,
            )
            for name, refresh in first.items()
        ]
    db.close()
    console.print(table("\nMaterialised views", ("view", "rows", "first, s", "again, s", "MB"), rows))
    return [
        Figure(
            "all materialised views refreshed for the first time",
            sum(refresh.seconds for refresh in first.values()),
            "s",
        ),
        Figure("the same again, with nothing new", sum(refresh.seconds for refresh in again.values()), "s"),
    ]


def asked(console: Console, url: str) -> list[Figure]:
    """How long each question takes for the role that can only read. Its plan is saved to a file."""
    reader = urls.reader_url(config.load(), url)
    rows: list[tuple[object, ...]] = []
    waited: list[tuple[float, int]] = []
    PLANS.mkdir(parents=True, exist_ok=True)
    for path in PLANS.glob("*.txt"):
        path.unlink()
    for question in questions():
        times = []
        for _ in range(REPEATS):  # each in a session of its own, as in `weavegen sql`
            with psycopg.connect(reader, autocommit=True) as conn:
                began = time.perf_counter()
                count = len(conn.execute(question.query.encode()).fetchall())
                times.append(1000 * (time.perf_counter() - began))
        with psycopg.connect(reader, autocommit=True) as conn:
            keep_plan(conn, question)
        rows.append((f"{question.number}. {question.title}", count, times[0], statistics.median(times)))
        waited.append((statistics.median(times), question.number))
    console.print(table("\nQuestions of docs/corpus.md, ms", ("question", "rows", "first", "median of 3"), rows))
    slowest, number = max(waited)
    return [
        Figure("questions answered", len(waited), "", at_least=25),
        Figure("of these in more than a second", sum(wait > WAIT for wait, _ in waited), "", at_most=0),
        Figure(f"the slowest, question {number}", slowest, "ms", at_most=WAIT),
    ]


def keep_plan(conn: psycopg.Connection[tuple[object, ...]], question: Question) -> None:
    """Write a question's query and its plan to a file."""
    query = question.query.strip().rstrip(";")
    plan = "\n".join(str(row[0]) for row in conn.execute(f"explain (analyze, buffers) {query}".encode()))
    name = re.sub(r"[^a-z0-9]+", "-", question.title.lower()).strip("-")
    text = f"-- {question.number}. {question.title}\n{query};\n\n{plan}\n"
    (PLANS / f"{question.number:02d}-{name}.txt").write_text(text)
