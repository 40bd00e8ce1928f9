"""How much of what a model writes is usable: weavegen-nano beside the model at OPENAI_BASE_URL.

Both write the same bootstraps under the same settings. Candidates that compile are tried in copies of the
environment, so that the judge's opinion is compared with what all of them did, not only the chosen ones.
BENCH_TRACES and BENCH_TICKS say how much is written, BENCH_CONTEXT how many tokens your model reads.
"""

import os

from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from bench.search import AUC
from weavegen.cli import watch
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.store.session import database

TRACES = int(os.environ.get("BENCH_TRACES", "4"))
"""For each model and bootstrap."""
TICKS = int(os.environ.get("BENCH_TICKS", "2"))
BOOTSTRAPS = ("sums.py", "tictactoe.py")
CONTEXT = int(os.environ.get("BENCH_CONTEXT", "8192"))
SETTINGS = {
    "search": "execute", "rounds": [4], "trials": 4, "max_tokens": 96, "query_samples": 2, "query_tokens": 24,
    "ticks": TICKS,
}  # fmt: skip
FIGURES = """
select count(*) as sampled, avg(n.compiles::int) as compile,
  avg(n.compiles::int) filter (where c.type in ('action', 'evaluation', 'observation-inference')) as code_compiles,
  (select avg(r.ran::int) from trials r join traces t on t.id = r.trace_id where t.job_id = :job) as ran,
  avg(c.tokens) as tokens,
  (select avg(c.tokens) from blocks b join candidates c on c.id = b.candidate_id join traces t on t.id = b.trace_id
    where t.job_id = :job) as kept_tokens,
  (select count(*) from traces where job_id = :job and status <> 'ended') as failed
from candidates c join penalties n on n.candidate_id = c.id join traces t on t.id = c.trace_id where t.job_id = :job
"""


def run(console: Console) -> list[Figure]:
    """Have each model write, one after the other, and show them side by side."""
    models = {"weavegen-nano": {"WEAVEGEN_MODEL": "nano", "OPENAI_BASE_URL": ""}}
    if url := os.environ.get("OPENAI_BASE_URL"):
        models[os.environ.get("BENCH_NAME", "the model at OPENAI_BASE_URL")] = {"OPENAI_BASE_URL": url}
    rows: list[list[object]] = []
    failed = 0
    for name, environ in models.items():
        with home() as folder, installation(folder, **environ):
            files = [enqueueing.BOOTSTRAPS / one for one in BOOTSTRAPS]
            own = {} if environ.get("WEAVEGEN_MODEL") else {"context": CONTEXT}
            job = enqueueing.enqueue(*files, n=TRACES, seed=5, settings=SETTINGS | own)
            watch.show(job, stderr=True)
            with database().connect() as conn:
                totals = conn.execute(Statement(FIGURES), {"job": job}).one()
                opinion = conn.execute(Statement(AUC), {"job": job}).one()
        failed += totals.failed
        rows.append(
            [
                name,
                totals.sampled,
                percent(totals.compile),
                percent(totals.code_compiles),
                percent(totals.ran),
                float(totals.tokens),
                float(totals.kept_tokens),
                "-" if opinion.auc is None else f"{opinion.auc:.2f} ({opinion.ran} ran, {opinion.failed} failed)",
            ]
        )
    columns = ("", "candidates", "compile", "of code", "ran when tried", "tokens", "of a kept block", "judge's AUC")
    console.print(table(f"\n{TRACES} traces of each of {', '.join(BOOTSTRAPS)}, {TICKS} ticks", columns, rows))
    return [Figure("traces that failed", failed, "", at_most=0)]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * float(share):.0f} %"
