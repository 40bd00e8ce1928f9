"""docs/corpus.md: the query of every question runs and gives the printed answer; and the sample corpus.

With WEAVEGEN_WRITE_ANSWERS=1 in the environment the answers are written into the document instead.
"""

import hashlib
import os
import re
from collections.abc import Iterator

import pytest
from psycopg import sql

from bench.generator import COLUMNS, fill
from tests.support import sample_corpus
from tests.support.database import administration
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.store import reports, tables, urls, views
from weavegen.store.session import pooled
from weavegen.trace.render import parse_trace

SECONDS = 60
KEYS = """
select conrelid::regclass::text as from_table, confrelid::regclass::text as to_table,
  array(select quote_ident(attname) from unnest(conkey) with ordinality k (n, i)
    join pg_attribute on attrelid = conrelid and attnum = n order by i) as from_columns,
  array(select quote_ident(attname) from unnest(confkey) with ordinality k (n, i)
    join pg_attribute on attrelid = confrelid and attnum = n order by i) as to_columns
from pg_constraint where contype = 'f'
"""


@pytest.fixture(scope="module")
def sample(config: Config, template: str) -> Iterator[Database]:
    """A database with the sample corpus."""
    name = sql.Identifier("sample_corpus")
    with administration(config) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))
    db = pooled(urls.embedded_url(config, "sample_corpus"))
    sample_corpus.make(db)
    yield db
    db.close()
    with administration(config) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_every_question_has_the_printed_answer(sample: Database) -> None:
    asked = sample_corpus.questions()
    with sample.connect() as conn:
        answers = {
            question.number: sample_corpus.printed(*reports.select(conn, question.query, SECONDS, None))
            for question in asked
        }
    if os.environ.get("WEAVEGEN_WRITE_ANSWERS"):
        sample_corpus.rewrite(answers)
        asked = sample_corpus.questions()
    for question in asked:
        assert question.answer == answers[question.number], f"{question.number}. {question.title}"
        assert answers[question.number].count("\n") > 1, f"{question.number} has an answer without rows"


def test_the_document_has_all_questions() -> None:
    text = sample_corpus.DOCUMENT.read_text()
    asked = sample_corpus.questions()
    assert [question.number for question in asked] == list(range(1, len(asked) + 1))
    assert len(asked) >= 25
    assert len(asked) == text.count("```sql") == text.count("\n### ")
    assert all(len(line) <= 115 for question in asked for line in question.query.splitlines())


def test_the_document_names_all_tables_and_views(sample: Database) -> None:
    table = sample_corpus.DOCUMENT.read_text().split("| name | a row is |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if "`" in row)))
    assert named <= {*tables.names(), *views.ORDER}
    marked = set(re.findall(r"`(\w+)` ∘", table))
    with sample.connect() as conn:
        assert marked == named & set(conn.execute(Statement("select name from freshness")).scalars())


def test_the_sample_has_the_documented_size(sample: Database) -> None:
    with sample.connect() as conn:
        traces = conn.execute(Statement("select count(*) from traces")).scalar_one()
    assert f"{sample_corpus.BLOCKS:,} blocks in {traces} traces" in sample_corpus.DOCUMENT.read_text()


def test_a_generated_corpus_is_consistent_and_depends_only_on_the_seed(database: str, db: Database) -> None:
    fill(database, 600, seed=9)
    with db.connect() as conn:
        for key in conn.execute(Statement(KEYS)).all():
            pairs = list(zip(key.from_columns, key.to_columns, strict=True))
            found = conn.execute(
                Statement(
                    f"select count(*) from {key.from_table} a where "
                    + " and ".join(f"a.{column} is not null" for column, _ in pairs)
                    + f" and not exists (select from {key.to_table} b where "
                    + " and ".join(f"a.{own} = b.{other}" for own, other in pairs)
                    + ")"
                )
            ).scalar_one()
            assert found == 0, key
        traces = conn.execute(Statement("select id, blocks, bytes from traces where blocks > 0")).all()
        assert sum(trace.blocks for trace in traces) == 600
        for trace in traces:
            text = "".join(reports.blocks(conn, trace.id))
            assert (len(parse_trace(text)), len(text.encode())) == (trace.blocks, trace.bytes)
            compile(text, "trace.py", "exec")
    with db.connect() as conn:  # without a commit
        conn.execute(
            Statement("insert into events (trace_id, kind) values (1, 'x')")
        )  # new ids follow the generated ones
    first = contents(db)
    with pytest.raises(UsageError, match="not empty"):
        fill(database, 600, seed=9)
    for seed, same in ((9, True), (10, False)):
        with db.begin() as conn:
            conn.execute(Statement(f"truncate {', '.join(COLUMNS)} cascade"))
        fill(database, 600, seed=seed)
        assert (contents(db) == first) is same


def contents(db: Database) -> dict[str, str]:
    """A hash of each table's rows."""
    found = {}
    with db.connect() as conn:
        for table in COLUMNS:
            rows = conn.execute(Statement(f"select cast(t as text) from {table} t order by 1")).scalars()
            found[table] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found
