"""`weave` and `react` on the same tasks, with the same model and the same budget of sampled tokens a trace.

With the simulated model this compares the cost and the yield of the two programs; their success depends on the
policies of the simulation. For a real model set OPENAI_BASE_URL. BENCH_BOOTSTRAPS names other bootstrap files,
BENCH_TOKENS the budget.
"""

import os
from pathlib import Path

from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from weavegen.cli import watch
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.store.session import database

AGENTS = ("weave", "react")
TRACES = int(os.environ.get("BENCH_TRACES", "24"))
"""For each bootstrap and agent."""
TOKENS = int(os.environ.get("BENCH_TOKENS", "40000"))
"""Token budget of a trace. The first step beyond the budget is the last."""

SUMS = """
with last as (  -- each trace's last evaluation of its task
  select distinct on (e.trace_id, e.title) e.trace_id, e.error is null and e.value = 'true' as held
  from evaluations e where e.scope = 'task' order by e.trace_id, e.title, e.id desc
)
select count(*) as traces,
  avg((select coalesce(bool_and(held), false) from last where last.trace_id = t.id)::int) as success,
  avg(t.sampled_tokens) as sampled,
  avg((select sum(p.tokens) from prompts p where p.trace_id = t.id)) as read,
  avg((select coalesce(sum(c.tokens), 0) from blocks b join candidates c on c.id = b.candidate_id
    where b.trace_id = t.id)) as kept_tokens,
  avg(t.bytes) as bytes, avg(t.ticks) as ticks,
  avg(extract(epoch from t.finished_at - t.started_at)) as seconds,
  count(*) filter (where t.status <> 'ended') as failed
from traces t where t.job_id = :job
"""


def run(console: Console) -> list[Figure]:
    """Run both agents on each bootstrap, one after the other, and show them side by side."""
    names = os.environ.get("BENCH_BOOTSTRAPS", "tictactoe.py").split(",")
    files = [path if path.exists() else enqueueing.BOOTSTRAPS / path for path in map(Path, names)]
    real = "OPENAI_BASE_URL" in os.environ
    console.print("the model is real" if real else "the model is a SIMULATION: success is its policies' doing")
    rows: list[list[object]] = []
    failed = 0
    with home() as folder, installation(folder):
        for file in files:
            for agent in AGENTS:
                job = enqueueing.enqueue(
                    file, n=TRACES, seed=1, agent=agent, settings={"sampled_tokens": TOKENS, "steps": 1000}
                )
                watch.show(job, stderr=True)
                with database().connect() as conn:
                    totals = conn.execute(Statement(SUMS), {"job": job}).one()
                failed += totals.failed
                rows.append(
                    [
                        f"{file.stem} {agent}",
                        f"{100 * totals.success:.0f} %",
                        f"{totals.sampled:,.0f}",
                        f"{totals.kept_tokens / totals.sampled:.0%}" if totals.sampled else "-",
                        f"{totals.read:,.0f}",
                        f"{totals.bytes:,.0f}",
                        f"{1000 * totals.bytes / totals.sampled:,.0f}" if totals.sampled else "-",
                        float(totals.ticks),
                        float(totals.seconds),
                    ]
                )
    columns = (
        "", "success", "tokens sampled", "of these kept", "tokens read", "bytes kept", "per 1,000 sampled",
        "ticks or steps", "seconds",
    )  # fmt: skip
    title = f"\nA trace of each, means of {TRACES}; at most {TOKENS:,} sampled tokens"
    console.print(table(title, columns, rows))
    return [Figure("traces that failed", failed, "", at_most=0)]
