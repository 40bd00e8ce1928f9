"""Releases: reproducible byte for byte after any change of the corpus; near-duplicates; contamination."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.database import copy_of, database_of_copy
from tests.support.worker import Worker, enqueue, scalar
from weavegen import exports
from weavegen.cli.release import checked
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError, WeavegenError
from weavegen.exports import write
from weavegen.exports.format import Options
from weavegen.exports.releases.facts import contamination, units
from weavegen.exports.releases.freeze import again, differing, freeze
from weavegen.exports.releases.manifest import differences
from weavegen.exports.releases.near_duplicates import Double, Unit, doubles, jaccard, shingles
from weavegen.store import annotations, releases, urls
from weavegen.store.annotations import Place
from weavegen.store.session import pooled

SCORED = """
update scores s set candidate_id = c.id from steps p, steps q, candidates c
where p.id = s.step_id and s.stage = 'selection' and q.trace_id = p.trace_id and q.tick = p.tick and q.run = p.run
  and q.ordinal = (p.request ->> 'sample')::int and c.step_id = q.id and c.position = s.position
"""
"""The worker of these tests does not record to which candidate a score belongs."""
READ = """
insert into prompts (step_id, trace_id, server, first_block)
select id, trace_id, 'http://s', (request -> 'prompt' -> 'window' ->> 0)::int from steps where kind = 'sample'
on conflict do nothing
"""
"""Nor does it record what the model read."""


TURNED_ROUND = """
do $$
begin
  for one in reverse (select max(id) from TABLE)..1 loop
    update TABLE set trace_id = trace_id where id = one;
  end loop;
end
$$
"""


@pytest.fixture(scope="module")
def written(config: Config, template: str) -> Iterator[str]:
    """A database with a few traces that have ended."""
    with copy_of(config, template) as name:
        db = pooled(urls.embedded_url(config, name))
        enqueue(db, 4, ticks=2)
        write_traces(db, 1)
        db.close()
        yield name


@pytest.fixture
def corpus(config: Config, written: str) -> Iterator[Database]:
    """The same for one test, which may change it."""
    with database_of_copy(config, written) as db:
        yield db


def write_traces(db: Database, seed: int) -> None:
    worker = Worker(db, seed)
    worker.run(worker.engine.start_queued())
    execute(db, SCORED)
    execute(db, READ)


def wanted(out: Path, format: str = "text", **options: Any) -> write.Export:
    return write.Export(format=exports.find(format), out=out, simulation=True, **options)


def make(
    db: Database, config: Config, out: Path, name: str = "one", threshold: float | None = None, **options: Any
) -> dict[str, Any]:
    """Make a release. Returns its manifest."""
    with db.connect() as conn:
        freeze(conn, name, wanted(out, **options), threshold, config)
    return dict(json.loads((out / "manifest.json").read_text()))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def execute(db: Database, statement: str, **parameters: Any) -> None:
    with db.begin() as conn:
        conn.execute(Statement(statement), parameters)


# -------------------------------------------------------------------------------------------------- byte for byte


@pytest.mark.parametrize("format", ["text", "kto", "py", "json"])
def test_a_release_is_reproducible_after_later_changes(
    corpus: Database, config: Config, tmp_path: Path, format: str
) -> None:
    splits = {"train": 0.5, "test": 0.5}
    manifest = make(corpus, config, tmp_path / "a", format=format, splits=splits, where="trace_id > 1")
    enqueue(corpus, 3, seed=2, ticks=2)
    write_traces(corpus, 9)
    last = scalar(corpus, "select max(index) from blocks where trace_id = 2 and candidate_id is not null")
    with corpus.begin() as conn:  # the card of kto says that nobody checked the evaluator
        annotations.save(conn, Place(2, last), "anna", verdict="good")
    # The order of rows on the disk is not guaranteed: reverse it.
    for table in ("candidates", "blocks", "scores", "ticks"):
        execute(corpus, TURNED_ROUND.replace("TABLE", table))
    with corpus.connect() as conn:
        again(conn, "one", tmp_path / "b")
        assert differing(conn, "one", tmp_path / "a") == differing(conn, "one", tmp_path / "b") == []
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert manifest["rows"]["kept"] == manifest["rows"]["found"] > 0
    assert manifest["files"].keys() == bytes_of(tmp_path / "a").keys() - {"manifest.json"}


def test_contents_of_the_manifest_and_the_card(corpus: Database, config: Config, tmp_path: Path) -> None:
    manifest = make(corpus, config, tmp_path / "a", threshold=0.95)
    assert manifest["release"] == "one"
    assert manifest["condition"] is None
    assert manifest["key"] == ["trace_id"]
    assert manifest["models"] == [""]
    assert manifest["tokenizer"] is None  # there is no server
    assert len(manifest["settings"]) == 1
    assert manifest["rubrics"] == [scalar(corpus, "select distinct rubric from scores")]
    assert manifest["contamination"]["shown"] == 0
    assert len(manifest["code_sha256"]) == 64
    card = (tmp_path / "a" / "README.md").read_text()
    assert "## Release one" in card
    assert "SIMULATED" in card
    row = scalar(corpus, "select rows from releases where name = 'one'")
    assert row == manifest["rows"]["kept"]


def test_many_rows_are_stored_in_parts(
    corpus: Database, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "KEYS_PER_PART", 7)
    manifest = make(corpus, config, tmp_path / "a", format="kto")
    assert scalar(corpus, "select count(*) from release_keys") > 2
    with corpus.connect() as conn:
        keys = list(releases.keys(conn, releases.load(conn, "one")))
        again(conn, "one", tmp_path / "b")
    assert len(keys) == manifest["rows"]["kept"]
    assert keys == sorted(keys)


def test_running_traces_are_left_out(corpus: Database, config: Config, tmp_path: Path) -> None:
    execute(corpus, "update traces set status = 'running' where id = 2")
    manifest = make(corpus, config, tmp_path / "a")
    assert (manifest["rows"]["found"], manifest["rows"]["open"], manifest["rows"]["kept"]) == (4, 1, 3)
    execute(corpus, "update traces set status = 'running'")
    with pytest.raises(UsageError, match="none in a trace that is over"):
        make(corpus, config, tmp_path / "b", name="two")
    assert not (tmp_path / "b").exists()


def test_a_changed_corpus_is_detected(corpus: Database, config: Config, tmp_path: Path) -> None:
    make(corpus, config, tmp_path / "a")
    execute(corpus, "update blocks set rendered = rendered || '#' where id = (select max(id) from blocks)")
    with corpus.connect() as conn:
        with pytest.raises(
            WeavegenError, match=r"differs from what it was .*parquet differs.*: rows of it were changed"
        ):
            again(conn, "one", tmp_path / "b")
        conn.rollback()
        execute(corpus, "update releases set code_sha256 = repeat('0', 64)")
        with pytest.raises(WeavegenError, match="weavegen's code 000000000000, here"):
            again(conn, "one", tmp_path / "b")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_changed_folder_is_detected(corpus: Database, config: Config, tmp_path: Path) -> None:
    make(corpus, config, tmp_path / "a", format="py")
    [first, second, *_] = sorted((tmp_path / "a" / "train").iterdir())
    first.unlink()
    second.write_text("")
    (tmp_path / "a" / "new").touch()
    (tmp_path / "a" / "manifest.json").write_text("{}")
    with corpus.connect() as conn:
        assert differing(conn, "one", tmp_path / "a") == [
            "manifest.json differs",
            "new does not belong to it",
            f"train/{first.name} is missing",
            f"train/{second.name} differs",
        ]
        with pytest.raises(UsageError, match="is not a folder"):
            differing(conn, "one", tmp_path / "b")


def test_names_and_folders_of_releases(corpus: Database, config: Config, tmp_path: Path) -> None:
    make(corpus, config, tmp_path / "a")
    with pytest.raises(UsageError, match="never changed"):
        make(corpus, config, tmp_path / "b")
    with pytest.raises(UsageError, match="already exists"):
        make(corpus, config, tmp_path / "a", name="two")
    with pytest.raises(UsageError, match=r"give 0, or 0\.3 to 0\.95"):
        make(corpus, config, tmp_path / "b", name="two", threshold=0.99)
    with pytest.raises(UsageError, match="--where"):
        make(corpus, config, tmp_path / "b", name="two", where="typo")
    with pytest.raises(UsageError, match="leave --student out"):
        make(corpus, config, tmp_path / "b", name="two", format="sft", options=Options(student=tmp_path))
    with corpus.connect() as conn, pytest.raises(UsageError, match="there is no release 'x'"):
        again(conn, "x", tmp_path / "b")
    for name in ("", "two\nlines", "-x", "x" * 101):
        with pytest.raises(UsageError, match="can't be the name"):
            checked(name)
    assert scalar(corpus, "select count(*) from releases") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


# --------------------------------------------------------------------------------------------- near-duplicates

WORDS = [f"word{number}" for number in range(200)]


def text(first: int, last: int = 100) -> str:
    return " ".join(WORDS[first : first + last])


def test_shingles_are_runs_of_five_words() -> None:
    assert len(shingles(text(0, 7))) == 3
    assert len(shingles("one two")) == 1
    assert shingles("  ") == set()
    assert jaccard(text(0), text(0)) == 1.0
    assert jaccard(text(0), "") == 0.0
    assert jaccard(text(0), text(48)) == pytest.approx(48 / 144)


@pytest.mark.parametrize(
    ("units", "removed"),
    [
        ([Unit((1,), text(0), 0.1), Unit((2,), text(0), 0.2)], [((1,), (2,))]),  # the higher reward stays
        ([Unit((1,), text(0), 0.1), Unit((2,), text(0), 0.1)], [((2,), (1,))]),  # then the older
        ([Unit((1,), text(0), None), Unit((2,), text(0), -1.0)], [((1,), (2,))]),  # no reward is the lowest
        ([Unit((1,), text(0), 0.1), Unit((2,), text(100), 0.1)], []),
        ([Unit((1,), text(0), 0.1), Unit((2,), text(0) + " end", 0.1)], [((2,), (1,))]),
        ([Unit((1,), text(0), 0.1, "a?"), Unit((2,), text(0), 0.1, "b?")], []),  # different questions
        ([Unit((1,), "", 0.1), Unit((2,), "", 0.1)], []),
        ([Unit((1,), "a b", 0.1), Unit((2,), "a b", 0.2), Unit((3,), "a b", 0.3)], [((1,), (3,)), ((2,), (3,))]),
    ],
)
def test_which_of_two_near_duplicates_is_kept(units: list[Unit], removed: list[Any]) -> None:
    found = doubles(units, 0.8)
    assert [(one.key, one.like) for one in found] == removed
    assert all(one.similarity >= 0.8 for one in found)


def test_a_text_that_only_resembles_a_removed_one_stays() -> None:
    """The middle text resembles both others, which differ: the best text removes it, and the last one stays."""
    units = [Unit((1,), text(0), 0.3), Unit((2,), text(9), 0.2), Unit((3,), text(22), 0.1)]
    assert jaccard(units[0].text, units[1].text) > 0.8 > jaccard(units[0].text, units[2].text)
    assert [one.key for one in doubles(units, 0.75)] == [(2,)]


@pytest.mark.parametrize("format", sorted(exports.FORMATS))
def test_near_duplicates_of_each_format_are_found(
    corpus: Database, config: Config, tmp_path: Path, format: str
) -> None:
    """The corpus repeats itself often, so little is left."""
    chosen = wanted(tmp_path, format)
    with corpus.connect() as conn, closing(write.selected(conn, chosen)) as keys:
        rows = list(units(conn, chosen.format.view, chosen.format.key, keys.traces()))
        assert len(rows) == keys.count
    assert all(row.key for row in rows)
    if not rows:
        pytest.skip("the corpus has no row of this format")
    assert any(row.text for row in rows)
    found = doubles(rows, 0.8)
    kept = {row.key for row in rows} - {one.key for one in found}
    by_key = {row.key: row for row in rows}
    for one in found:
        assert one.like in kept
        ours, theirs = by_key[one.key], by_key[one.like]
        assert ours.apart == theirs.apart
        assert (theirs.reward is not None) >= (ours.reward is not None)
        if ours.reward is not None and theirs.reward is not None:
            assert theirs.reward >= ours.reward
    if format in ("kto", "sft"):
        assert len(kept) < len(rows)


def test_removed_rows_are_recorded(corpus: Database, config: Config, tmp_path: Path) -> None:
    execute(corpus, "update blocks set body = 'the same words in each and every block here' where candidate_id > 0")
    execute(corpus, "update ticks set reward = 0.1 * trace_id")
    manifest = make(corpus, config, tmp_path / "a", threshold=0.3)
    assert manifest["rows"] == {"found": 4, "open": 0, "near_duplicates": 3, "kept": 1}
    assert "3 near-duplicates removed" in (tmp_path / "a" / "README.md").read_text()
    with corpus.connect() as conn:
        assert list(releases.keys(conn, releases.load(conn, "one"))) == [(4,)]
        removed = conn.execute(Statement("select keys from release_keys where kind = 'removed'")).scalar_one()
        again(conn, "one", tmp_path / "b")
    assert removed == [1, 4, 2, 4, 3, 4]
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


# ----------------------------------------------------------------------------------------------- contamination


def test_contamination_is_what_retrieval_should_not_have_shown(corpus: Database) -> None:
    """A step of trace 1 retrieves blocks whose kinds are known."""
    with corpus.begin() as conn:
        step, tick, run = conn.execute(
            Statement(
                """
                select s.id, s.tick, s.run from steps s where s.trace_id = 1
                  and s.kind = 'sample' and s.ordinal > 0 order by s.id limit 1
                """
            )
        ).one()
        step = conn.execute(
            Statement("select id from steps where trace_id = 1 and tick = :tick and run = :run and ordinal = 0"),
            {"tick": tick, "run": run},
        ).scalar_one()
        retrieval = conn.execute(
            Statement(
                """
                insert into retrievals (trace_id, step_id, query, before, least_score) values (1, :step, 'q', 1, 0)
                returning id
                """
            ),
            {"step": step},
        ).scalar_one()
        example = conn.execute(
            Statement(
                """
                insert into examples (sha256, type, description, question, score, body)
                values ('x', 'action', 'd', 'q?', 1, 'b') returning id
                """
            )
        ).scalar_one()

        def block(trace: int, index: int) -> int:
            query = "select id from blocks where trace_id = :t and index = :i"
            return int(conn.execute(Statement(query), {"t": trace, "i": index}).scalar_one())

        written = conn.execute(
            Statement(
                """
                select (request->'prompt'->'window'->>1)::int from steps
                where trace_id = 1 and tick = :tick and run = :run and ordinal > 0 and kind = 'sample'
                order by ordinal limit 1
                """
            ),
            {"tick": tick, "run": run},
        ).scalar_one()
        body = conn.execute(Statement("select body from blocks where id = :id"), {"id": block(1, written)}).scalar_one()
        # In order: its own past; its own window; another's past; another's future; equal to its own text; outside.
        shown = [block(1, 0), block(1, 1), block(2, 0), block(2, 1), block(3, 0), block(4, 0)]
        for rank, id in enumerate(shown, 1):
            later = "interval '1 day'" if rank == 4 else "interval '-1 day'"
            conn.execute(
                Statement(f"update blocks set created_at = now() + {later}, body = :body where id = :id"),
                {"id": id, "body": body if rank == 5 else f"shown {rank}"},
            )
            conn.execute(
                Statement(
                    """
                    insert into retrieval_hits (retrieval_id, rank, block_id, score, used)
                    values (:r, :rank, :id, 1, true)
                    """
                ),
                {"r": retrieval, "rank": rank, "id": id},
            )
        conn.execute(
            Statement(
                """
                insert into retrieval_hits (retrieval_id, rank, block_id, example_id, score, used)
                values (:r, 7, null, :example, 1, true), (:r, 8, :unused, null, 1, false)
                """
            ),
            {"r": retrieval, "example": example, "unused": block(2, 1)},
        )
    with corpus.connect() as conn:
        found = contamination(
            conn, [1, 2, 3], [Double((3,), (1,), 0.9)], 0.8, lambda trace: "test" if trace == 2 else "train"
        )
    assert (found["shown"], found["from_other_traces"], found["examples"]) == (6, 4, 1)

    def of(kind: str) -> list[int]:
        assert found[kind]["count"] == len(found[kind]["examples"])
        return [one["shown"] for one in found[kind]["examples"]]

    assert of("future") == [shown[1], shown[3]]
    assert of("other_split") == [shown[2], shown[3]]
    assert of("itself") == [shown[4]]
    assert of("near_duplicate") == [shown[4]]
    assert of("outside") == [shown[5]]


def test_differences_are_listed_one_by_one() -> None:
    assert differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        "a is missing", "b differs", "c does not belong to it",
    ]  # fmt: skip
