"""A cipher is broken in small steps, and linting keeps forged evaluator lines out of the traces."""

import ast
import re
from dataclasses import dataclass

import pytest

from bootstraps.vigenere_cipher import TEXTS, letters
from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.linting.forged_markup import is_fake
from weavegen.trace.render import parse_trace

VIGENERE = ROOT / "bootstraps" / "vigenere.py"


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    """Ten traces, each with a seed and a text of its own. The key is short, because each letter costs a tick."""
    return run(installation, "-n", "10", "--ticks", "12")


@pytest.fixture(scope="module")
def unlinted(installation: Installation) -> int:
    return run(installation, "-n", "4", "--ticks", "3", "--set", "linting=false")


def run(installation: Installation, *options: str) -> int:
    rows = installation.json("run", VIGENERE, "--seed", "3", "-p", "key=oak", *options)
    assert {row["status"] for row in rows} == {"ended"}
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


def is_faked(text: str) -> bool:
    """Whether a comment in the text imitates an evaluator line."""
    return any("q" in comment and is_fake(comment) for comment in re.findall(r"#.*", text))


@dataclass
class ForgedShares:
    """The shares of a job's texts that contain a forged evaluator line, 0 to 1."""

    candidates: float
    kept: float
    """Share of the blocks that the model wrote."""
    traces: float
    """Share of the traces with a forged line in a kept block."""


def fakes(installation: Installation, job: int) -> ForgedShares:
    sampled = installation.sql(
        "select c.text from candidates c join traces t on t.id = c.trace_id "
        "where t.job_id = :job and c.type <> 'bm25-query'",
        job=job,
    )
    blocks = installation.sql(
        "select t.id, b.body from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.candidate_id is not null",
        job=job,
    )
    kept = [trace for trace, body in blocks if is_faked(body)]
    return ForgedShares(
        candidates=sum(is_faked(text) for [text] in sampled) / len(sampled),
        kept=len(kept) / len(blocks),
        traces=len(set(kept)) / len({trace for trace, _ in blocks}),
    )


def test_at_least_eight_of_ten_traces_find_the_plaintext(installation: Installation, job: int) -> None:
    rows = installation.sql(
        """
        select t.seed, t.returned, exists (
          select from evaluations e
          where e.trace_id = t.id and e.tick = t.ticks and e.scope = 'task' and e.value = 'true'
        ) from traces t where t.job_id = :job
        """,
        job=job,
    )
    assert len({seed for seed, _, _ in rows}) == 10
    returned = [found for _, found, evaluated in rows if found is not None and found["is_found"] and evaluated]
    assert len(returned) >= 8
    plaintexts = {found["plaintext"] for found in returned}
    assert plaintexts <= set(map(letters, TEXTS))
    assert len(plaintexts) > 1, "each trace draws a text of its own"


def test_the_prompt_never_shows_the_solution(installation: Installation, job: int) -> None:
    """Before its key is complete, a trace contains no part of a plaintext, whoever wrote it."""
    shown = installation.sql(
        "select b.body from blocks b join traces t on t.id = b.trace_id where t.job_id = :job and b.tick <= 1", job=job
    )
    text = letters("\n".join(body for [body] in shown))
    assert not any(letters(plaintext)[:40] in text for plaintext in TEXTS)


def test_linting_keeps_forged_evaluator_lines_out(installation: Installation, job: int, unlinted: int) -> None:
    linted, loose = fakes(installation, job), fakes(installation, unlinted)
    assert linted.candidates > 0.08
    assert (linted.kept, linted.traces) == (0, 0)
    # The simulated evaluator believes such lines, so about twice as many of them are kept as were written.
    assert loose.kept > loose.candidates / 2 > 0.04
    assert loose.traces >= 0.75


def test_without_linting_nothing_is_penalised_or_rewritten(installation: Installation, unlinted: int) -> None:
    [[linted, penalised, rewritten, broken]] = installation.sql(
        """
        select count(*), count(*) filter (where syntax + shape + assertions + title + extra_elements > 0),
          count(*) filter (where trim(both e'\\n' from p.rewritten) <> trim(both e'\\n' from c.text)),
          count(*) filter (where not p.compiles)
        from penalties p join candidates c on c.id = p.candidate_id join traces t on t.id = c.trace_id
        where t.job_id = :job
        """,
        job=unlinted,
    )
    assert linted > broken > 0
    assert (penalised, rewritten) == (0, 0)


def test_a_trace_without_linting_is_also_one_python_file(installation: Installation, unlinted: int) -> None:
    [[trace]] = installation.sql("select min(id) from traces where job_id = :job", job=unlinted)
    text = installation.cli("show", str(trace)).stdout
    ast.parse(text)
    assert render_trace(parse_trace(text)) == text
