"""Traces written directly into a database: a long one, a hostile one, and one that is still being written."""

from weavegen.database import Connection, Statement
from weavegen.trace.blocks import Block, BlockType
from weavegen.trace.render import render_block

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>"
    "</pre></textarea><style>*{display:none}</style>{{ 7*7 }}\u202e\x1b[31m"
)


def new_trace(conn: Connection, name: str = "made.py", status: str = "running") -> int:
    """An empty trace in a job of its own. Returns its id."""
    job = conn.execute(
        Statement(
            "insert into jobs (name, agent, seed, settings, version) values (:name, 'weave', 1, '{}', '0') returning id"
        ),
        {"name": name},
    ).scalar_one()
    bootstrap = conn.execute(
        Statement("insert into bootstraps (sha256, name, source) values (:sha, :name, '') returning id"),
        {"sha": f"{name} {job}", "name": name},
    ).scalar_one()
    return int(
        conn.execute(
            Statement(
                "insert into traces (job_id, number, bootstrap_id, params, seed, status, started_at) "
                "values (:job, 1, :bootstrap, '{}', 1, :status, now()) returning id"
            ),
            {"job": job, "bootstrap": bootstrap, "status": status},
        ).scalar_one()
    )


def action(number: int, lines: int) -> str:
    """The body of a block."""
    steps = "\n".join(f"    total_{line} = {number} + {line}  # step {line} of block {number}" for line in range(lines))
    registration = f'self.add_action("Act {number}", action_{number})'
    return f'def action_{number}(self):\n{steps}\n    return "done"\n\n{registration}'


def add_blocks(conn: Connection, trace: int, bodies: list[str], type: BlockType = BlockType.ACTION) -> None:
    """Append blocks to a trace, as one commit would."""
    first = conn.execute(Statement("select blocks from traces where id = :id"), {"id": trace}).scalar_one()
    size = 0
    columns = "trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, compiles, tags, score"
    with conn.cursor().copy(f"copy blocks ({columns}) from stdin") as copy:
        for index, body in enumerate(bodies, first):
            block = Block(
                type=type, index=index, subagent="main", body=body, timestamp=1.8e9 + index, time_remaining=9.0
            )
            text = render_block(block)
            size += len(text.encode())
            copy.write_row(
                (trace, index, index // 10, "main", str(type), body, text, 1.8e9 + index, 9.0, True, [], 0.5)
            )
    conn.execute(
        Statement("update traces set blocks = blocks + :n, bytes = bytes + :size where id = :id"),
        {"n": len(bodies), "size": size, "id": trace},
    )


def add_candidates(conn: Connection, trace: int, index: int, texts: list[str]) -> list[int]:
    """Candidates for a block, of which the first was chosen. Returns their ids."""
    step = conn.execute(
        Statement(
            "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue, claims) "
            "select trace_id, tick, 0, index, 'sample', '', 'done', '{}', 'sample', 1 from blocks "
            "where trace_id = :trace and index = :index returning id"
        ),
        {"trace": trace, "index": index},
    ).scalar_one()
    add = Statement(
        "insert into candidates "
        "(trace_id, step_id, position, block_index, type, round, text, finish_reason, tokens) "
        "values (:trace, :step, :position, :index, 'action', 0, :text, 'stop', 9) returning id"
    )
    values = {"trace": trace, "step": step, "index": index}
    ids = [
        int(conn.execute(add, {**values, "position": position, "text": text}).scalar_one())
        for position, text in enumerate(texts)
    ]
    chosen = Statement("update blocks set candidate_id = :id where trace_id = :trace and index = :index")
    conn.execute(chosen, {"id": ids[0], "trace": trace, "index": index})
    return ids
