"""`atif`: a trajectory per trace, in the Agent Trajectory Interchange Format, ATIF-v1.7.

The format is that of Harbor's RFC 0001 (https://harborframework.com/docs/trajectory-format). Blocks that the model
wrote are steps of the agent: text is their message; code is a call of a tool named like the block type, and the
result of its execution is the observation. Task reminders, observations and outcomes are steps of the system. The
bootstrap file and messages of a conversation's user are steps of the user. In a conversation, the calls in a message
are tool calls of its step, and the answers of the tools its observation. Subagents are trajectories of their own in
the same file. Steps are numbered from 1; `extra` has the block's index.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from weavegen import sql
from weavegen.agents.dialogue import TOOL_CALL
from weavegen.exports.format import Source, file_per_trace
from weavegen.exports.text import blocks
from weavegen.kernel.template import split_thoughts
from weavegen.pool.chat_messages import RESPONSE, read_call
from weavegen.trace.blocks import CALLBACK, BlockType, Label
from weavegen.trace.render import render_label

VERSION = "ATIF-v1.7"
MAX_OUTPUT_CHARS = 20_000
"""Maximum characters of an observation. The rest is cut off."""
TOOLS = CALLBACK | {BlockType.OBSERVATION_INFERENCE, BlockType.BOOTSTRAP}
"""Types of blocks that are code and are executed."""
WRITTEN = TOOLS - {BlockType.BOOTSTRAP}
WRITES_BLOCKS = ("weave", "planning")
NOTES = (
    "Written by weavegen. A step of the agent is the candidate that was chosen, and has its metrics. "
    "final_metrics count all candidates; of the prompts they count those of sampling, each once."
)
Object = dict[str, Any]


def text(source: Source, trace: int) -> Iterator[str]:
    """The trajectory as JSON, one step per line."""
    [row] = sql.run(source.conn, "exports/atif-trace", trace=trace).mappings()
    root = f"weavegen-trace-{trace}"
    subagents = sql.run(source.conn, "exports/atif-subagents", trace=trace).all()
    refs = {subagent.name: f"{root}/{subagent.name}" for subagent in subagents}
    agent = {"name": f"weavegen-{row['agent']}", "version": row["version"], "model_name": row["model"]}
    agent = known(agent | {"tool_definitions": tool_definitions(row) or None})
    head = {"schema_version": VERSION, "session_id": root, "trajectory_id": root, "agent": agent}
    rest = {"notes": NOTES, "final_metrics": row["final_metrics"], "extra": row["extra"]}
    yield from trajectory(head, steps(source, trace, "main", refs), rest)
    yield ', "subagent_trajectories": ['
    for number, subagent in enumerate(subagents):
        yield ",\n" if number else "\n"
        own = head | {"trajectory_id": refs[subagent.name]}
        rest = {"final_metrics": {}, "extra": subagent.extra}
        yield from trajectory(own, steps(source, trace, subagent.name, refs), rest)
        yield "}"
    yield "]}\n"


def trajectory(head: Object, steps: Iterator[Object], rest: Object) -> Iterator[str]:
    """The JSON object of a trajectory: the fields before the steps, the steps, and the others. Its brace is missing."""
    yield encoded(head)[:-1] + ', "steps": ['
    number = 0
    for number, step in enumerate(steps, 1):
        yield (",\n" if number > 1 else "\n") + encoded({"step_id": number} | step)
    rest["final_metrics"] |= {"total_steps": number}
    yield "\n], " + encoded(rest)[1:-1]


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def known(values: Object) -> Object:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def tool_definitions(trace: Any) -> list[Object]:
    """The tools of an agent in OpenAI's form: those that its system message declares, or the types that are code."""
    if trace["system"] is None:
        return [code_tool(type) for type in sorted(WRITTEN)] if trace["agent"] in WRITES_BLOCKS else []
    found = []
    for line in trace["system"].splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found += [msgspec.json.decode(line)] if line.startswith('{"type": "function"') else []
    return found


def code_tool(type: BlockType) -> Object:
    """A type of blocks as a function."""
    parameters = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    about = f"Run Python code, as a block of the type {type}, in the process of the trace."
    return {"type": "function", "function": {"name": type, "description": about, "parameters": parameters}}


def steps(source: Source, trace: int, subagent: str, refs: dict[str, str]) -> Iterator[Object]:
    """The steps of a subagent, without their numbers."""
    before: Object | None = None
    for row in blocks(source.conn, "atif-blocks", trace, subagent=subagent):
        if row.type == BlockType.TOOL and before and "tool_calls" in before and "observation" not in before:
            before["observation"] = {"results": answers(before["tool_calls"], row._asdict())}
            continue
        if before:
            yield before
        before = make_step(row._asdict(), refs)
    if before:
        yield before


def make_step(row: Any, refs: dict[str, str]) -> Object:
    """A block as a step without its number. `refs`: the trajectories of subagents by name."""
    type, step = BlockType(row["type"]), dict(row["step"])
    by_agent = step["source"] == "agent"
    if type is BlockType.OPTION and row["question"] is not None:
        step["message"] = render_label(Label(row["question"], row["answer"], row["probability"])).strip()
    call = f"block-{row['index']}"
    if type is BlockType.ASSISTANT:
        step |= message(row["body"], call)
    if by_agent and type in TOOLS:
        step["message"] = row["title"] or ""
        step["tool_calls"] = [{"tool_call_id": call, "function_name": type, "arguments": {"code": row["body"]}}]
    if (result := observation(row, refs)) is not None:
        if "tool_calls" in step:
            result["source_call_id"] = call
        step["observation"] = {"results": [result]}
    if by_agent and row["metrics"]:
        step["metrics"] = row["metrics"]
    return step | {"extra": row["extra"]}


def message(text: str, name: str) -> Object:
    """A message of a conversing agent: thoughts, calls, and the rest of the text. Its calls are named after `name`.

    A call whose JSON, name or arguments the agent refused is a call of the function `tool_call` with this text.
    """
    rest, thoughts = split_thoughts(text)
    calls = []
    for number, match in enumerate(TOOL_CALL.finditer(rest)):
        try:
            function, arguments = read_call(match[1])
            encoded([function, arguments])  # UTF-8 has no lone surrogates, and JSON may
        except ValueError:
            function, arguments = "tool_call", {"text": match[1]}
        calls.append({"tool_call_id": f"{name}-{number}", "function_name": function, "arguments": arguments})
    said = {"reasoning_content": "\n".join(map(str.strip, thoughts)) or None, "tool_calls": calls or None}
    return {"message": TOOL_CALL.sub("", rest).strip()} | known(said)


def answers(calls: list[Object], row: Any) -> list[Object]:
    """What the tools answered, in the order of their calls; one text where these do not match."""
    texts = RESPONSE.findall(row["body"])
    extra = {"index": row["index"], "type": row["type"]}
    if len(texts) != len(calls):
        return [{"content": row["body"], "extra": extra}]
    return [
        {"source_call_id": call["tool_call_id"], "content": text, "extra": extra}
        for call, text in zip(calls, texts, strict=True)
    ]


def observation(row: Any, refs: dict[str, str]) -> Object | None:
    """The result of executing a block; None: it was not executed."""
    result = row["result"]
    if not isinstance(result, dict):
        return None
    parts = [str(result["output"])] if result.get("output") else []
    if (error := result.get("error")) is not None:
        parts.append(error.get("traceback") or f"{error['type']}: {error['message']}")
    elif result.get("value") is not None:
        parts.append("returned: " + encoded(result["value"]))
    if (callee := result.get("waits_for")) is not None:
        parts.append(f"calls the subagent {callee}")
    seen: Object = {"content": "\n".join(parts)[:MAX_OUTPUT_CHARS] or "It ran without errors."}
    if subagents := [{"trajectory_id": refs[name]} for name in (row["called"], callee) if name in refs]:
        seen["subagent_trajectory_ref"] = subagents
    return seen


FORMAT = file_per_trace("atif", "json", text)
