"""Exports: speed and memory of each format, on a generated corpus of 100,000 blocks.

Each export is a process of its own, like the command. Its rate is the size of the text that it wrote, before
compression, divided by the time from the start of the query to the renaming of the folder.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import generator
from bench.bars import Figure, table
from bench.installation import home
from weavegen import config, exports
from weavegen.database import Statement
from weavegen.exports import write
from weavegen.services import postgres, schema
from weavegen.store import urls
from weavegen.store.session import pooled

BLOCKS = int(os.environ.get("WEAVEGEN_BENCH_BLOCKS", "100000"))
SMALL, LARGE = 0.2, 1.0
"""Shares of the traces that are exported. Memory must not grow with them."""
ROWS = {"text": None, "py": None, "json": None}
"""The most rows of the view that are exported, by format (None: all); MOST for other formats.

The prompts of other formats repeat each other: all rows would be gigabytes of text.
"""
MOST = 10_000
BARRED = ("text", "sft", "dpo", "kto", "grpo", "stepwise", "verifier")
"""Formats in Parquet that only read and write.

`retrieval` runs queries; `atropos` needs token ids, which the generated corpus does not have.
"""
SPLITS = {"train": 0.95, "test": 0.05}

# The steps of the generated corpus hold no requests. These columns replace the ones that the prompts would have.
REQUESTS = """
update steps s set request = jsonb_build_object('kind', 'sample', 'n', 4, 'prompt', jsonb_build_object(
  'type', c.type, 'window', jsonb_build_array(p.first_block, greatest(p.first_block, c.block_index)),
  'header', '#subagent main' || chr(10) || '#startblock type: ' || c.type || chr(10) || '#index ' || c.block_index
    || chr(10),
  'prefix', case when c.type = 'action' then 'def action_' else '' end))
from prompts p join candidates c on c.step_id = p.step_id and c.position = 0
where s.id = p.step_id and s.kind = 'sample'
"""


def run(console: Console) -> list[Figure]:
    with home() as folder:
        os.environ["WEAVEGEN_HOME"] = str(folder)
        settings = config.load()
        postgres.start(settings)
        try:
            url = urls.database_url(settings)
            schema.upgrade(url)
            generator.fill(url, BLOCKS)
            db = pooled(url, autocommit=True)
            with db.connect() as conn:
                conn.execute(Statement(REQUESTS))
                conn.execute(Statement("vacuum analyze"))
                traces = conn.execute(Statement("select max(id) from traces")).scalar_one()
            db.close()
            return measure(console, folder, traces)
        finally:
            postgres.stop(settings)


def measure(console: Console, folder: Path, traces: int) -> list[Figure]:
    figures, rows = [], []
    for name in [name for name in exports.FORMATS if name in BARRED or name in ROWS]:
        small, large = (alone(name, folder / f"{name}-{share}", share, traces) for share in (SMALL, LARGE))
        if large is None or small is None:
            continue
        rate = large["text"] / 1e6 / large["seconds"]
        growth = large["memory"] / small["memory"]
        rows.append(
            [name, large["rows"], large["text"] / 1e6, large["bytes"] / 1e6, large["seconds"], large["cpu"], rate,
             small["text"] / 1e6, small["memory"] / 1e6, large["memory"] / 1e6]
        )  # fmt: skip
        figures += [
            Figure(f"{name}: text written a second", rate, "MB/s", at_least=30 if name in BARRED else None),
            Figure(f"{name}: peak memory, all against a fifth", growth, "times", at_most=1.25),
        ]
    columns = (
        "format", "rows", "text MB", "files MB", "s", "own CPU s", "MB/s", "a fifth: MB", "its peak", "peak MB",
    )  # fmt: skip
    console.print(table(f"\nExports of {BLOCKS:,} blocks", columns, rows))
    return figures


def alone(name: str, out: Path, share: float, traces: int) -> dict[str, Any] | None:
    """Run an export in a process of its own. Returns None if the generated corpus has no rows for it."""
    limit = None if name in ROWS else int(MOST * share)
    where = f"trace_id <= {int(traces * share)}"
    command = [sys.executable, "-m", "bench.exports", name, str(out), where, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(f"{name}: {done.stderr.strip().splitlines()[-1]}\n")
        return None
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main(name: str, out: str, where: str, limit: str) -> None:
    """Entry point of the process that `alone` starts: write one export and print its figures as JSON."""
    db = pooled(urls.database_url(config.load()))
    began, spent = time.perf_counter(), time.process_time()
    with db.connect() as conn:
        written = write.export(
            conn,
            write.Export(
                format=exports.find(name),
                out=Path(out),
                where=where if name in ROWS else None,
                limit=None if limit == "None" else int(limit),
                splits=SPLITS,
            ),
        )
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    # Not ru_maxrss, which starts with the value of the parent process.
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    peak = 1024 * int(line.split()[1])
    rows = sum(written.rows.values())
    print(  # noqa: T201 (the process that started this one reads it)
        json.dumps(
            {
                "rows": rows,
                "text": written.text_bytes,
                "bytes": written.bytes,
                "seconds": seconds,
                "cpu": cpu,
                "memory": peak,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
