"""The archive of docs/operating.md: a job in Parquet files, deleted from PostgreSQL, still found by SQL with DuckDB."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.reading import ROOT, Code, code, commands
from tests.support import TICTACTOE
from tests.support.installation import Installation, installed
from weavegen.store import urls
from weavegen.store.session import pooled

DOCUMENT = ROOT / "docs" / "operating.md"
TEXTS = "select trace_id, string_agg(rendered, '' order by index) from blocks group by 1"


@pytest.fixture
def corpus() -> Iterator[Installation]:
    with installed() as one:
        yield one


def section() -> range:
    """The lines of the section."""
    lines = DOCUMENT.read_text().splitlines()
    begin = lines.index("## Archive a job")
    return range(begin, lines.index("## Delete a job", begin))


def deletion() -> str:
    """The statements of the section about deleting a job."""
    text = DOCUMENT.read_text().split("## Delete a job\n")[1].split("\n## ")[0]
    [statements] = re.findall(r"(?m)^    with recursive gone .*\n(?:    .*\n)+", text)
    return str(statements)


def typed(corpus: Installation, folder: Path, job: int, fork: int) -> Iterator[str]:
    """Run the section's commands for these jobs in this folder, one by one. Yields the output of each."""
    environ = corpus.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands(DOCUMENT):
        if command.line in section() and command.block is not None:
            text = command.text.replace("select 3::", f"select {job}::").replace("(3, 5)", f"({job}, {fork})")
            text = text.replace('weavegen sql "', 'weavegen sql --json "')
            done = subprocess.run(["bash", "-c", text], cwd=folder, env=environ, capture_output=True, text=True)
            assert done.returncode == 0, done
            yield done.stdout


def queried(block: Code) -> dict[str, Any]:
    """The names that a block of Python defines."""
    names: dict[str, Any] = {}
    exec(block.text, names)
    return names


def test_archived_traces_are_deleted_and_still_found(
    corpus: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, kept = (int(corpus.json("enqueue", TICTACTOE, "-n", n, "--ticks", "2")["job"]) for n in ("2", "1"))
    corpus.wait(job)
    [[trace, at]] = corpus.sql("select id, blocks * 2 / 3 from traces where job_id = :job limit 1", job=job)
    fork = int(corpus.json("fork", str(trace), "--at", str(at))["job"])
    corpus.wait(fork)
    corpus.wait(kept)
    texts: dict[int, str] = dict(corpus.sql(TEXTS))
    [[live]] = corpus.sql("select id from traces where job_id = :kept", kept=kept)
    del texts[live]
    monkeypatch.chdir(tmp_path)
    compare, query = (block for block in code(DOCUMENT) if block.line in section() and block.language == "python")

    outputs = typed(corpus, tmp_path, job, fork)
    rows = json.loads(next(outputs))
    assert [(row["job_id"], row["open"], row["traces"]) for row in rows] == [(job, 0, 2), (fork, 0, 1)]
    for _ in range(4):  # the dump and the exports
        next(outputs)
    [counted] = queried(compare)["archived"].fetchall()
    assert counted == (3, sum(row["bytes"] for row in rows))

    db = pooled(urls.database_url(corpus.config))
    with db.begin() as conn:
        conn.execute(deletion().replace("select 3::", f"select {job}::").encode())
    db.close()
    assert corpus.sql("select id from traces") == [(live,)]
    assert len(list(outputs)) == 1, "the file of live traces is written after the deletion"

    names = queried(query)
    corner = [id for id, text in sorted(texts.items()) if "corner" in text]
    found = names["found"].fetchall()
    assert corner
    assert [id for id, _, _ in found] == corner
    assert all("corner" in place for _, _, place in found)
    best = names["best"].fetchall()
    assert best
    assert {id for id, *_ in best} <= set(texts)
    assert [value for *_, value in best] == sorted((value for *_, value in best), reverse=True)
    assert sum(traces for *_, traces in names["both"].fetchall()) == len(texts) + 1
