"""Researchers in a real database with a simulated model server: what they can read, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.process import Process
from tests.support.database import database_of_copy
from tests.support.templates import CHATML
from tests.support.worker import Worker, scalar
from weavegen import sql
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.engine.document_folder import read_folder
from weavegen.kernel import context
from weavegen.kernel.steps import Candidate, LookUp, LookUpResult, Sample
from weavegen.pool.client import ModelClient
from weavegen.search import lookups as consulting
from weavegen.search.lookups import consult
from weavegen.store import candidates, documents, jobs, steps
from weavegen.store.jobs import Order
from weavegen.store.states import StepStatus
from weavegen.trace.blocks import BlockType

WICK = "# Wicks\n\nThe lantern's wick is three inches long.\n\nA longer one smokes.\n"
OIL = "\n".join(f"Line {number}: oil number {number % 7}." for number in range(1, 301)) + "\n"
TASK = {"task": "How long is the wick of the lantern, and which oil does it burn?"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("research") / "papers"
    (root / "lamps").mkdir(parents=True)
    (root / "lamps" / "wick.md").write_text(WICK)
    (root / "lamps" / "oil.md").write_text(OIL)
    (root / "index.md").write_text("See lamps/.\n")
    return root


def enqueue(db: Database, folder: Path | None, n: int = 1, **task: Any) -> int:
    source = json.dumps(TASK | task)
    with db.begin() as conn:
        job = jobs.enqueue(
            conn,
            [Order("task.json", source)] * n,
            name="test",
            agent="research",
            model=None,
            seed=7,
            settings={},
            version="0",
        )
        if folder is not None:
            documents.save(conn, job, read_folder(folder))
    return job


class Reader:
    """A trace that calls the tools."""

    def __init__(self, db: Database, folder: Path | None) -> None:
        self.db, self.job = db, enqueue(db, folder)
        self.trace = int(scalar(db, "select id from traces where job_id = :job", job=self.job))

    def ask(self, tool: str, **arguments: Any) -> str:
        """The output of a tool, which must succeed."""
        said = consult(self.db, self.trace, tool, arguments)
        assert said.success, said.output
        return said.output

    def refused(self, tool: str, **arguments: Any) -> str:
        """The error of a tool, which must fail."""
        said = consult(self.db, self.trace, tool, arguments)
        assert not said.success, said.output
        assert "\n" not in said.output
        return said.output


@pytest.fixture(scope="module")
def shared(config: Config, template: str) -> Iterator[Database]:
    """A database for the tests that only read."""
    with database_of_copy(config, template) as db:
        yield db


@pytest.fixture(scope="module")
def reader(shared: Database, folder: Path) -> Reader:
    """A researcher that can read the folder."""
    return Reader(shared, folder)


def write(db: Database, trace: int, index: int, body: str) -> None:
    with db.begin() as conn:
        conn.execute(
            Statement(
                "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp,"
                " time_remaining, compiles, tags)"
                " values (:trace, :index, 1, 'main', 'action', :body, :rendered, 0, 0, true, '{}')"
            ),
            {"trace": trace, "index": index, "body": body, "rendered": f"#startblock\n{body}\n#endblock\n"},
        )
        conn.execute(Statement("update traces set blocks = :n where id = :id"), {"n": index + 1, "id": trace})


class TestDocuments:
    def test_listing(self, reader: Reader) -> None:
        everything = reader.ask("list_documents")
        assert everything == "index.md (1 lines)\nlamps/oil.md (300 lines)\nlamps/wick.md (5 lines)"
        assert reader.ask("list_documents", folder="lamps/") == everything.split("\n", 1)[1]
        assert "no folder" in reader.refused("list_documents", folder="lamp")

    def test_very_many(self, shared: Database) -> None:
        many = Reader(shared, None)
        with shared.begin() as conn:
            documents.save(conn, many.job, {f"{n % 3}/{n}.md": f"text {n % 50}" for n in range(1_000)})
        shown = many.ask("list_documents").split("\n")
        assert len(shown) == 204
        assert "800 more" in shown[200]
        assert shown[201] == "0/ (334 documents)"
        assert scalar(shared, "select count(*) from documents where text like 'text %'") == 50

    def test_reading(self, reader: Reader) -> None:
        assert reader.ask("read_document", path="lamps/oil.md", first_line=299) == (
            "299: Line 299: oil number 5.\n300: Line 300: oil number 6."
        )
        assert reader.ask("read_document", path="./lamps/oil.md", lines=1).endswith("(299 more lines)")
        assert "none from 301 on" in reader.refused("read_document", path="lamps/oil.md", first_line=301)
        assert "do you mean lamps/wick.md or" in reader.refused("read_document", path="lamps/wicks.md")

    @pytest.mark.parametrize(
        "path", ["../../etc/passwd", "/etc/passwd", "lamps/../../../etc/passwd", "/proc/self/environ", "%", "", "~"]
    )
    def test_no_other_file_is_found(self, reader: Reader, path: str) -> None:
        assert "no document" in reader.refused("read_document", path=path)
        if path not in ("", "%", "~"):
            assert "no folder" in reader.refused("list_documents", folder=path)
            assert "no folder" in reader.refused("grep_documents", pattern=".", folder=path)

    def test_searching(self, reader: Reader) -> None:
        found = reader.ask("search_documents", query="How long is the lantern's wick?")
        assert found.startswith("lamps/wick.md, lines 1 to 5 (score ")
        assert "three inches" in found
        assert "no passage" in reader.ask("search_documents", query="zeppelin")
        assert reader.ask("search_documents", query="oil", limit=10**6).count("lamps/oil.md, lines") > 1

    def test_grep(self, reader: Reader) -> None:
        assert reader.ask("grep_documents", pattern=r"\bTHREE") == "no line matches"
        assert reader.ask("grep_documents", pattern=r"(?i)\bTHREE\b") == (
            "lamps/wick.md:3: The lantern's wick is three inches long."
        )
        assert reader.ask("grep_documents", pattern="^S", folder="lamps") == "no line matches"
        many = reader.ask("grep_documents", pattern="oil").split("\n")
        assert len(many) == 101
        assert "more than 100" in many[-1]
        assert "invalid regular expression" in reader.refused("grep_documents", pattern="(")

    @pytest.mark.parametrize(
        "pattern", [r"(x+x+)+y", r"(x|x)*\1y", r"(.*)*(.*)*(.*)*y\1\2\3", "((x{1,255}){1,255}){1,255}", "x" * 200_000]
    )
    def test_a_pattern_that_would_take_too_long_is_cancelled(
        self, reader: Reader, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.setattr(consulting, "TIMEOUT_SECONDS", 0.5)
        hostile = Reader(reader.db, None)
        with reader.db.begin() as conn:
            documents.save(conn, hostile.job, {"x.md": "x" * 50_000})
        # PostgreSQL optimises some of these. None may take longer than the limit.
        said = consult(reader.db, hostile.trace, "grep_documents", {"pattern": pattern})
        assert said.success or "canceling statement" in said.output or "regular expression" in said.output

    def test_documents_are_those_at_the_time_of_enqueueing(self, shared: Database, tmp_path: Path) -> None:
        (tmp_path / "a.md").write_text("three inches")
        reader = Reader(shared, tmp_path)
        (tmp_path / "a.md").write_text("four inches")
        (tmp_path / "b.md").write_text("new")
        assert reader.ask("read_document", path="a.md") == "1: three inches"
        assert reader.ask("list_documents") == "a.md (1 lines)"

    def test_each_job_has_its_own_documents(self, reader: Reader) -> None:
        other = Reader(reader.db, None)
        for tool, arguments in {
            "list_documents": {},
            "search_documents": {"query": "wick"},
            "grep_documents": {"pattern": "wick"},
        }.items():
            assert "no documents" in other.refused(tool, **arguments)
        assert "no document" in other.refused("read_document", path="index.md")
        with reader.db.begin() as conn:
            sql.run(conn, "store/copy_documents", source=reader.job, target=other.job)
            sql.run(conn, "store/copy_documents", source=reader.job, target=other.job)
        assert other.ask("list_documents") == reader.ask("list_documents")


CONTENT = "select string_agg(t::text, ',' order by id) || (select count(*) from pg_class) from traces t"
"""Statements that a query must not execute."""


class TestSql:
    def test_a_table(self, reader: Reader) -> None:
        query = f"select id, status, null as x, E'a\\nb' as y, 1, 2 from traces where id = {reader.trace}; "
        assert reader.ask("sql", query=query) == (
            f"id | status | x | y | ?column? | ?column?\n{reader.trace} | queued | null | a\\nb | 1 | 2\n(1 row)"
        )
        assert reader.ask("sql", query="with a as (select 1 as b) select * from a -- so").endswith("(1 row)")
        assert reader.ask("sql", query="select count(*) from corpus").startswith("count\n")

    def test_rows_and_values_are_limited(self, reader: Reader) -> None:
        shown = reader.ask("sql", query="select repeat('x', 100000) as x from generate_series(1, 1000)")
        assert len(shown) < 25_000
        assert "more than 50 rows" in shown.split("\n")[-1]

    @pytest.mark.parametrize(
        "query",
        [
            "delete from traces",
            "update traces set status = 'failed'",
            "insert into jobs select * from jobs",
            "with gone as (delete from traces returning id) select * from gone",
            "select 1) as found; delete from traces; select * from (select 1",
            "select * from traces; delete from traces",
            "create table x (y int)",
            "select * into x from traces",
            "drop table traces",
            "truncate traces",
            "set role weavegen",
            "select set_config('transaction_read_only', 'off', true)",
            "select set_config('role', 'weavegen', true)",
            "copy traces to '/tmp/stolen'",
            "copy traces to program 'cat'",
            "select pg_read_file('/etc/passwd')",
            "select lo_import('/etc/passwd')",
            "select nextval('traces_id_seq')",
            "select from traces",
            "select 1 from traces for update",
            "",
            "nonsense",
        ],
    )
    def test_a_query_that_does_more_than_read_is_refused(self, reader: Reader, query: str) -> None:
        before = scalar(reader.db, CONTENT)
        reader.refused("sql", query=query)
        assert scalar(reader.db, CONTENT) == before

    def test_a_query_that_takes_too_long_is_cancelled(self, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("weavegen.search.lookups.corpus.TIMEOUT_SECONDS", 0.3)
        assert "timeout" in reader.refused("sql", query="select pg_sleep(60)")


class TestCorpus:
    def test_other_traces_are_found_but_not_its_own(self, shared: Database) -> None:
        reader, other = Reader(shared, None), Reader(shared, None).trace
        for index in range(30):
            write(shared, reader.trace, index, f"lantern lantern {index}")
        for index in range(4):
            write(shared, other, index, f"light the lantern and walk on {index}")
        found = reader.ask("search_corpus", query="Where is the lantern?", limit=3)
        assert found.count(f"trace {other}, block ") == 3
        assert f"trace {reader.trace}," not in found
        assert "nothing in the corpus" in reader.ask("search_corpus", query="zeppelin")
        assert "can't be parsed" in reader.refused("search_corpus", query="?!")
        assert reader.ask("read_blocks", trace=other, first=2) == (
            "#startblock\nlight the lantern and walk on 2\n#endblock\n"
            "#startblock\nlight the lantern and walk on 3\n#endblock\n"
        )
        assert reader.ask("read_blocks", trace=other, count=1).endswith("(3 more blocks)")
        assert "none from 4 on" in reader.refused("read_blocks", trace=other, first=4)
        assert "no trace 999" in reader.refused("read_blocks", trace=999)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("terminal", {"command": "ls"}),
        ("__import__", {"name": "os"}),
        ("sql", {}),
        ("sql", {"query": 1}),
        ("sql", {"query": "select 1", "more": 1}),
        ("sql", {"query": "select 1", "conn": None}),
        ("sql", {"query": "select '\0'"}),
        ("sql", {"query": "\ud800"}),
        ("read_blocks", {"trace": 2**62}),
        ("read_blocks", {"trace": 2**64}),
        ("read_blocks", {"trace": "1"}),
        ("read_document", {"path": "index.md", "first_line": 2**62}),
        ("search_documents", {"query": ["a"]}),
    ],
)
def test_bad_arguments_are_answered_with_an_error(reader: Reader, tool: str, arguments: dict[str, Any]) -> None:
    said = consult(reader.db, reader.trace, tool, arguments)
    assert isinstance(said, LookUpResult)
    assert not said.success


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a simulated model server."""
    process = Process(tmp_path_factory.mktemp("sim"), "sim")
    yield process.url
    process.kill()


class Researchers(Worker):
    """A worker whose model is the simulated server, and whose tools are real."""

    def __init__(self, db: Database, url: str) -> None:
        super().__init__(db)
        self.client = ModelClient(url, "EMPTY", None)
        self.length = self.client.length
        self.order: list[tuple[int, str]] = []
        """(trace, kind) of the steps in order of execution."""

    def finish(self, held: steps.Claimed) -> list[steps.Message]:
        step, save = held.step, None
        result: Any
        self.order.append((held.trace_id, str(step.__struct_config__.tag)))
        if isinstance(step, LookUp):
            result = consult(self.db, held.trace_id, step.tool, step.arguments)
        else:
            assert isinstance(step, Sample)
            sampled = self.sample(held.trace_id, step)
            result = sampled

            def save(conn: Connection) -> None:
                candidates.save(conn, held.trace_id, held.id, step, 0, sampled, [(None, None)])

        return self.engine.finish(held, StepStatus.DONE, save, result=result).messages

    def sample(self, trace: int, step: Sample) -> list[Candidate]:
        query = "select type, body from blocks where trace_id = :trace and index >= :first order by index"
        with self.db.connect() as conn:
            rows = conn.execute(Statement(query), {"trace": trace, "first": step.prompt.window[0]}).all()
        spoken = (context.spoken(BlockType(row.type), row.body, CHATML) for row in rows)
        prompt = "".join(spoken) + context.opening(BlockType.ASSISTANT, CHATML)
        answer = self.client.sample(
            prompt, n=1, max_tokens=2_000, temperature=0.7, top_k=-1, repetition_penalty=1.0, seed=step.seed,
            stop=context.stops(step.prompt, CHATML),
        )  # fmt: skip
        [one] = answer.continuations
        return [
            Candidate(
                text=one.text,
                finish_reason=one.finish_reason,
                tokens=len(one.token_ids or ()),
                prompt_tokens=answer.prompt_tokens,
                length=self.length,
            )
        ]


@pytest.mark.parametrize("prompt", ["general", "literature"])
def test_researchers_run_in_parallel(db: Database, folder: Path, server: str, prompt: str) -> None:
    enqueue(db, folder, 4, prompt=prompt)
    worker = Researchers(db, server)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        traces = conn.execute(Statement("select * from traces order by id")).all()
        notes = conn.execute(Statement("select trace_id, detail from events where kind = 'status'")).all()
        answers = "\n".join(conn.execute(Statement("select body from blocks where type = 'tool'")).scalars())
    assert [trace.status for trace in traces] == ["ended"] * 4
    assert len({trace for trace, _ in worker.order[:4]}) == 4, "Do they run in parallel?"
    summaries = [trace.returned["summary"] for trace in traces]
    assert len(set(summaries)) > 1
    for trace, summary in zip(traces, summaries, strict=True):
        assert "simulation" in summary
        assert (prompt == "literature") == ("## Recipes\n| Rank | Source |" in summary)
        assert trace.returned["tool_calls"] == sum(one == (trace.id, "consult") for one in worker.order)
        own = [note.detail for note in notes if note.trace_id == trace.id]
        assert all(detail.startswith("research: How long is the wick of the lantern") for detail in own)
        assert own[0].endswith("| started")
        assert sum("| > " in detail for detail in own) == trace.returned["tool_calls"]
    assert "three inches" in answers
    assert "lamps/wick.md:" in "".join(summaries)


def test_the_caller_gets_nothing_that_the_researcher_read(db: Database, folder: Path, server: str) -> None:
    """A trace returns only its summary and its costs."""
    enqueue(db, folder)
    worker = Researchers(db, server)
    worker.run(worker.engine.start_queued())
    returned = scalar(db, "select returned from traces")
    assert set(returned) == {"summary", "iterations", "tool_calls", "total_tokens", "error"}
    assert "tool_response" not in json.dumps(returned)
