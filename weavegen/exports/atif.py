"""`atif`: a trajectory for each trace, in the Agent Trajectory Interchange Format, ATIF-v1.7.

The format is that of Harbor's RFC 0001 (https://harborframework.com/docs/trajectory-format). What the model wrote
is the agent's steps: text as their message, code as a call of the tool that its block type names, with what came
of it as the observation. What the world wrote (task reminders, views, outcomes) is the system's steps, the
bootstrap file and what a conversation's user says the user's. Subagents are trajectories of their own in the same
file. A step's number is not its block's index: that is in `extra`.
"""

import datetime
from collections.abc import Generator, Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.exports.format import FileFormat, Source
from weavegen.exports.read_prompts import numbers, reals
from weavegen.trace.blocks import CALLBACK, BlockType, Label
from weavegen.trace.render import render_label

VERSION = "ATIF-v1.7"
PAGE = 128
"""Blocks fetched at a time."""
LONGEST = 20_000
"""Characters of what an execution printed or gave back."""
TOOLS = CALLBACK | {BlockType.OBSERVATION_INFERENCE, BlockType.BOOTSTRAP}
"""Types of blocks that are code and are executed."""

TRACE = """
select t.id, t.number, t.params, t.seed, t.status, t.ended_because, t.failure_kind, t.failure, t.returned, t.ticks,
  t.blocks, t.bytes, t.candidates, t.sampled_tokens, t.fork_of, t.fork_at, t.retry_of, j.id as job_id,
  j.name as job, j.agent, j.model, j.version, f.name as bootstrap,
  (select sum(p.tokens) from prompts p join steps s on s.id = p.step_id
    where p.trace_id = t.id and s.kind = 'sample')::bigint as prompt_tokens,
  (select sum(p.cached) from prompts p join steps s on s.id = p.step_id
    where p.trace_id = t.id and s.kind = 'sample')::bigint as cached_tokens,
  (select sum(k.reward) from ticks k where k.trace_id = t.id and k.number > 0) as reward
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id where t.id = :trace
"""
SUBAGENTS = """
select b.subagent as name, min(a.parent) as parent, min(a.description) as description,
  bool_or(a.completed) as completed
from blocks b left join subagents a on a.trace_id = b.trace_id and a.name = b.subagent
where b.trace_id = :trace and b.subagent <> 'main' group by 1 order by min(b.index)
"""
# Of a block that a call's end is, the call stands in the journal right before what executed it.
BLOCKS = """
select b.*, c.tokens, c.token_ids::text as token_ids, c.logprobs::text as logprobs, p.tokens as prompt_tokens,
  p.cached, s.result, w.request ->> 'subagent' as called
from blocks b
left join candidates c on c.id = b.candidate_id
left join prompts p on p.step_id = c.step_id
left join steps s on s.id = b.executed_by
left join steps w on w.trace_id = s.trace_id and w.tick = s.tick and w.run = s.run and w.ordinal = s.ordinal - 1
  and w.kind = 'work'
where b.trace_id = :trace and b.index >= :first and b.subagent = :subagent order by b.index limit :most
"""

Step = dict[str, Any]


def text(source: Source, trace: int) -> Iterator[str]:
    """The trajectory as JSON, a step a line."""
    row = source.conn.execute(sa.text(TRACE), {"trace": trace}).one()
    root = f"weavegen-trace-{trace}"
    found = source.conn.execute(sa.text(SUBAGENTS), {"trace": trace}).all()
    refs = {subagent.name: f"{root}/{subagent.name}" for subagent in found}
    yield opened(head(row, root))
    steps = yield from steps_of(source, row, "main", refs)
    yield closed({"final_metrics": totals(row, steps), "notes": NOTES, "extra": extra(row)}, more=True)
    yield ', "subagent_trajectories": ['
    for number, subagent in enumerate(found):
        yield (",\n" if number else "\n") + opened(head(row, refs[subagent.name], session=root))
        steps = yield from steps_of(source, row, subagent.name, refs)
        about = {name: subagent._mapping[name] for name in ("name", "parent", "description", "completed")}
        yield closed({"final_metrics": {"total_steps": steps}, "extra": {"subagent": about}})
    yield "]}\n"


NOTES = (
    "Written by weavegen. A step of the agent stands for the candidate that was chosen; its metrics are that "
    "one's. final_metrics count all candidates, and of prompts those of sampling, each once."
)


def head(row: Any, trajectory: str, session: str | None = None) -> dict[str, Any]:
    """What stands before the steps."""
    agent = {"name": f"weavegen-{row.agent}", "version": row.version}
    if row.model is not None:
        agent["model_name"] = row.model
    return {
        "schema_version": VERSION,
        "session_id": session or trajectory,
        "trajectory_id": trajectory,
        "agent": agent,
    }


def opened(values: dict[str, Any]) -> str:
    """The beginning of an object, up to its steps."""
    return msgspec.json.encode(values).decode()[:-1] + ', "steps": ['


def closed(values: dict[str, Any], *, more: bool = False) -> str:
    """Its end, behind them; with `more` there follows something."""
    rest = msgspec.json.encode({name: value for name, value in values.items() if value}).decode()[1:-1]
    return "\n], " + rest + ("" if more else "}")


def totals(row: Any, steps: int) -> dict[str, Any]:
    values = {
        "total_prompt_tokens": row.prompt_tokens,
        "total_completion_tokens": row.sampled_tokens,
        "total_cached_tokens": row.cached_tokens,
        "total_steps": steps,
        "extra": {"candidates": row.candidates, "reward": row.reward},
    }
    return {name: value for name, value in values.items() if value is not None}


ABOUT = (
    "job_id", "job", "number", "bootstrap", "params", "seed", "status", "ended_because", "failure_kind", "failure",
    "returned", "ticks", "blocks", "bytes", "fork_of", "fork_at", "retry_of",
)  # fmt: skip


def extra(row: Any) -> dict[str, Any]:
    """What ATIF has no name for."""
    return {"trace_id": row.id} | {name: row._mapping[name] for name in ABOUT}


def steps_of(source: Source, trace: Any, subagent: str, refs: dict[str, str]) -> Generator[str, None, int]:
    """The steps of a subagent, each behind a line's end; returns how many there are."""
    number, first = 0, 0
    while True:
        values = {"trace": trace.id, "first": first, "subagent": subagent, "most": PAGE}
        page = source.conn.execute(sa.text(BLOCKS), values).mappings().all()
        if not page:
            return number
        for row in page:
            number += 1
            mark = ",\n" if number > 1 else "\n"
            yield mark + msgspec.json.encode({"step_id": number} | step(row, trace, refs)).decode()
        first = page[-1]["index"] + 1


def step(row: Any, trace: Any, refs: dict[str, str]) -> Step:
    """A block as a step, less its number. `refs`: trajectories of subagents, by name."""
    type = BlockType(row["type"])
    found: Step = {
        "timestamp": datetime.datetime.fromtimestamp(row["timestamp"], datetime.UTC).isoformat(),
        "source": "agent" if row["block_size"] is not None or type is BlockType.OPTION else "system",
        "message": row["body"],
    }
    if type is BlockType.OPTION and row["question"] is not None:
        found["message"] = render_label(Label(row["question"], row["answer"], row["probability"])).strip()
    if type in (BlockType.BOOTSTRAP, BlockType.USER):
        found["source"] = "user"
    call = f"block-{row['index']}"
    if found["source"] == "agent" and type in TOOLS:
        found["message"] = row["title"] or ""
        code = {"tool_call_id": call, "function_name": type, "arguments": {"code": row["body"]}}
        found["tool_calls"] = [code]
    if (result := observed(row, refs)) is not None:
        if "tool_calls" in found:
            result["source_call_id"] = call
        found["observation"] = {"results": [result]}
    if found["source"] == "agent" and (metrics := measured(row)):
        found["metrics"] = metrics
    if trace.fork_at is not None and row["index"] < trace.fork_at:
        found["is_copied_context"] = True
    about = ("index", "type", "tick", "compiles", "ran", "question", "answer", "probability", "score", "reward")
    found["extra"] = {name: row[name] for name in about if row[name] is not None}
    return found


def observed(row: Any, refs: dict[str, str]) -> dict[str, Any] | None:
    """What came of executing a block; None: it was not executed."""
    result = row["result"]
    if not isinstance(result, dict):
        return None
    parts = [str(result["output"])] if result.get("output") else []
    error = result.get("error")
    if error is not None:
        parts.append(error.get("traceback") or f"{error['type']}: {error['message']}")
    elif result.get("value") is not None:
        parts.append("returned: " + msgspec.json.encode(result["value"]).decode())
    waits = result.get("waits_for")
    if waits is not None:
        parts.append(f"calls the subagent {waits}")
    found: dict[str, Any] = {"content": "\n".join(parts)[:LONGEST] or "It ran without errors."}
    if named := [{"trajectory_id": refs[name]} for name in (row["called"], waits) if name in refs]:
        found["subagent_trajectory_ref"] = named
    return found


def measured(row: Any) -> dict[str, Any]:
    """What the chosen candidate took."""
    values = {
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["tokens"],
        "cached_tokens": row["cached"],
        "completion_token_ids": None if row["token_ids"] is None else numbers(row["token_ids"]),
        "logprobs": None if row["logprobs"] is None else reals(row["logprobs"]),
    }
    return {name: value for name, value in values.items() if value is not None}


FORMAT = FileFormat(
    name="atif",
    about="A trajectory for each trace: ATIF-v1.7 JSON, as Harbor and its viewers read it.",
    view="text_examples",
    key=("trace_id",),
    suffix="json",
    text=text,
)
