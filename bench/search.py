"""Does search pay? The same games with the same budget of sampled tokens, and different ways to choose a block.

none: the first sample. judge: rounds, and the model's own opinion. execute: rounds whose best candidates are tried in
copies of the environment. The model is weavegen-nano, or the one at OPENAI_BASE_URL. BENCH_BOOTSTRAPS names the
bootstrap files, BENCH_WAYS the ways, BENCH_TRACES the games of each, BENCH_TOKENS the budget of a trace.
"""

import os
from pathlib import Path

from rich.console import Console

from bench.agents import SUMS
from bench.bars import Figure, in_percent, table
from bench.installation import home, installation
from weavegen.cli import watch
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.evaluator.evaluation import share
from weavegen.store.session import database

TRACES = int(os.environ.get("BENCH_TRACES", "80"))
TOKENS = int(os.environ.get("BENCH_TOKENS", "3000"))
"""Token budget of a trace. The first step beyond the budget is the last."""
BOOTSTRAPS = os.environ.get("BENCH_BOOTSTRAPS", "tictactoe.py,sums.py").split(",")
WAYS: dict[str, dict[str, object]] = {
    "none": {"rounds": [1]},
    "judge": {},
    "judge few": {"rounds": [1, 4]},
    "execute": {"search": "execute"},
}
CHOSEN = os.environ.get("BENCH_WAYS", ",".join(WAYS)).split(",")
AUC = """
with judged as (
  select r.ran, v.score, rank() over (order by v.score) + (count(*) over (partition by v.score) - 1) / 2.0 as place
  from trials r join candidate_values v on v.candidate_id = r.candidate_id join traces t on t.id = r.trace_id
  where t.job_id = :job and r.ran is not null and v.score is not null and v.type = 'action'
)
select count(*) filter (where ran) as ran, count(*) filter (where not ran) as failed,
  (sum(place) filter (where ran) - count(*) filter (where ran) * (count(*) filter (where ran) + 1) / 2.0)
    / nullif(count(*) filter (where ran) * count(*) filter (where not ran), 0) as auc
from judged
"""
"""The probability that the judge scores an action that runs above one that does not, over all that were tried."""


def run(console: Console) -> list[Figure]:
    """Run each way on each bootstrap, one after the other, and show them side by side."""
    files = [path if path.exists() else enqueueing.BOOTSTRAPS / path for path in map(Path, BOOTSTRAPS)]
    rows: list[list[object]] = []
    judged: list[list[object]] = []
    failed = 0
    with home() as folder, installation(folder, WEAVEGEN_MODEL="nano"):
        for file in files:
            for way in CHOSEN:
                settings = {**WAYS[way], "sampled_tokens": TOKENS, "ticks": 12}
                job = enqueueing.enqueue(file, n=TRACES, seed=11, settings=settings)
                watch.show(job, stderr=True)
                with database().connect() as conn:
                    totals = conn.execute(Statement(SUMS), {"job": job}).one()
                    opinion = conn.execute(Statement(AUC), {"job": job}).one()
                failed += totals.failed
                wins = round(float(totals.success) * TRACES)
                won = share([True] * wins + [False] * (TRACES - wins))
                rows.append(
                    [
                        f"{file.stem}, {way}",
                        in_percent(won),
                        f"{totals.sampled:,.0f}",
                        f"{1000 * totals.success / totals.sampled:.3f}",
                        f"{totals.kept_tokens / totals.sampled:.0%}",
                        float(totals.ticks),
                        float(totals.seconds),
                    ]
                )
                if opinion.auc is not None:
                    judged.append([f"{file.stem}, {way}", opinion.ran, opinion.failed, f"{opinion.auc:.2f}"])
    columns = ("", "success [95%]", "tokens sampled", "success per 1,000", "of these kept", "ticks", "seconds")
    console.print(table(f"\n{TRACES} traces of each; at most about {TOKENS:,} sampled tokens", columns, rows))
    title = "\nThe judge's opinion of actions that were tried, chosen or not"
    console.print(table(title, ("", "ran", "failed", "AUC"), judged))
    return [Figure("traces that failed", failed, "", at_most=0)]
