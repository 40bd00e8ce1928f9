"""`atif`: a trajectory per trace, in the Agent Trajectory Interchange Format, ATIF-v1.7.

The format is that of Harbor's RFC 0001 (https://harborframework.com/docs/trajectory-format). Blocks that the model
wrote are steps of the agent: text is their message; code is a call of a tool named like the block type, and the
result of its execution is the observation. Task reminders, observations and outcomes are steps of the system. The
bootstrap file and messages of a conversation's user are steps of the user. Subagents are trajectories of their own
in the same file. Steps are numbered from 1; `extra` has the block's index.
"""

import datetime
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from weavegen import sql
from weavegen.exports.format import FileFormat, Source
from weavegen.exports.read_prompts import integers, reals
from weavegen.exports.text import blocks
from weavegen.trace.blocks import CALLBACK, BlockType, Label
from weavegen.trace.render import render_label

VERSION = "ATIF-v1.7"
MAX_OUTPUT_CHARS = 20_000
"""Maximum characters of an observation. The rest is cut off."""
TOOLS = CALLBACK | {BlockType.OBSERVATION_INFERENCE, BlockType.BOOTSTRAP}
"""Types of blocks that are code and are executed."""
NOTES = (
    "Written by weavegen. A step of the agent is the candidate that was chosen, and has its metrics. "
    "final_metrics count all candidates; of the prompts they count those of sampling, each once."
)
ABOUT_TRACE = (
    "job_id", "job", "number", "bootstrap", "params", "seed", "status", "ended_because", "failure_kind", "failure",
    "returned", "ticks", "blocks", "bytes", "fork_of", "fork_at", "retry_of",
)  # fmt: skip
ABOUT_SUBAGENT = ("name", "parent", "description", "completed")
ABOUT_BLOCK = ("index", "type", "tick", "compiles", "ran", "question", "answer", "probability", "score", "reward")

Object = dict[str, Any]


def text(source: Source, trace: int) -> Iterator[str]:
    """The trajectory as JSON, one step per line."""
    row = sql.run(source.conn, "exports/atif-trace", trace=trace).mappings().one()
    root = f"weavegen-trace-{trace}"
    subagents = sql.run(source.conn, "exports/atif-subagents", trace=trace).mappings().all()
    refs = {subagent["name"]: f"{root}/{subagent['name']}" for subagent in subagents}
    yield begin(header(row, root))
    count = yield from steps(source, row, "main", refs)
    extra = {"trace_id": trace} | {name: row[name] for name in ABOUT_TRACE}
    totals = {
        "total_prompt_tokens": row["prompt_tokens"],
        "total_completion_tokens": row["sampled_tokens"],
        "total_cached_tokens": row["cached_tokens"],
        "total_steps": count,
        "extra": {name: row[name] for name in ("candidates", "reward", "protected_ticks", "not_evaluated")},
    }
    yield end({"final_metrics": known(totals), "notes": NOTES, "extra": extra})
    yield ', "subagent_trajectories": ['
    for number, subagent in enumerate(subagents):
        yield (",\n" if number else "\n") + begin(header(row, refs[subagent["name"]], session=root))
        count = yield from steps(source, row, subagent["name"], refs)
        about = {name: subagent[name] for name in ABOUT_SUBAGENT}
        yield end({"final_metrics": {"total_steps": count}, "extra": {"subagent": about}}) + "}"
    yield "]}\n"


def begin(values: Object) -> str:
    """The beginning of a JSON object, up to its steps."""
    return msgspec.json.encode(values).decode()[:-1] + ', "steps": ['


def end(values: Object) -> str:
    """The end of the steps, and the fields after them. The object's brace is missing."""
    return "\n], " + msgspec.json.encode({name: value for name, value in values.items() if value}).decode()[1:-1]


def known(values: Object) -> Object:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def header(row: Any, trajectory: str, session: str | None = None) -> Object:
    """The fields before the steps."""
    return {
        "schema_version": VERSION,
        "session_id": session or trajectory,
        "trajectory_id": trajectory,
        "agent": known({"name": f"weavegen-{row['agent']}", "version": row["version"], "model_name": row["model"]}),
    }


def steps(source: Source, trace: Any, subagent: str, refs: dict[str, str]) -> Generator[str, None, int]:
    """The steps of a subagent as JSON, each on a new line. Returns their number."""
    number = 0
    for number, row in enumerate(blocks(source.conn, "atif-blocks", trace["id"], subagent=subagent), 1):
        step = {"step_id": number} | make_step(row._mapping, trace, refs)
        yield (",\n" if number > 1 else "\n") + msgspec.json.encode(step).decode()
    return number


def make_step(row: Any, trace: Any, refs: dict[str, str]) -> Object:
    """A block as a step without its number. `refs`: the trajectories of subagents by name."""
    type = BlockType(row["type"])
    by_user = type in (BlockType.BOOTSTRAP, BlockType.USER)
    by_agent = not by_user and (row["block_size"] is not None or type is BlockType.OPTION)
    step: Object = {
        "timestamp": datetime.datetime.fromtimestamp(row["timestamp"], datetime.UTC).isoformat(),
        "source": "user" if by_user else "agent" if by_agent else "system",
        "message": row["body"],
    }
    if type is BlockType.OPTION and row["question"] is not None:
        step["message"] = render_label(Label(row["question"], row["answer"], row["probability"])).strip()
    call = f"block-{row['index']}"
    if by_agent and type in TOOLS:
        step["message"] = row["title"] or ""
        step["tool_calls"] = [{"tool_call_id": call, "function_name": type, "arguments": {"code": row["body"]}}]
    if (result := observation(row, refs)) is not None:
        if "tool_calls" in step:
            result["source_call_id"] = call
        step["observation"] = {"results": [result]}
    if by_agent and (candidate_metrics := metrics(row)):
        step["metrics"] = candidate_metrics
    if trace["fork_at"] is not None and row["index"] < trace["fork_at"]:
        step["is_copied_context"] = True
    step["extra"] = known({name: row[name] for name in ABOUT_BLOCK})
    return step


def observation(row: Any, refs: dict[str, str]) -> Object | None:
    """The result of executing a block; None: it was not executed."""
    result = row["result"]
    if not isinstance(result, dict):
        return None
    parts = [str(result["output"])] if result.get("output") else []
    error = result.get("error")
    if error is not None:
        parts.append(error.get("traceback") or f"{error['type']}: {error['message']}")
    elif result.get("value") is not None:
        parts.append("returned: " + msgspec.json.encode(result["value"]).decode())
    callee = result.get("waits_for")
    if callee is not None:
        parts.append(f"calls the subagent {callee}")
    seen: Object = {"content": "\n".join(parts)[:MAX_OUTPUT_CHARS] or "It ran without errors."}
    if subagents := [{"trajectory_id": refs[name]} for name in (row["called"], callee) if name in refs]:
        seen["subagent_trajectory_ref"] = subagents
    return seen


def metrics(row: Any) -> Object:
    """Tokens and logprobs of the chosen candidate."""
    return known(
        {
            "prompt_tokens": row["prompt_tokens"],
            "completion_tokens": row["tokens"],
            "cached_tokens": row["cached"],
            "completion_token_ids": None if row["token_ids"] is None else integers(row["token_ids"]),
            "logprobs": None if row["logprobs"] is None else reals(row["logprobs"]),
        }
    )


FORMAT = FileFormat(
    name="atif",
    about="A trajectory per trace: ATIF-v1.7 JSON, as Harbor and its viewers read it.",
    suffix="json",
    text=text,
)
