"""`sessions`: a JSONL file per trace, in the Session Trace Simple Format, which the Hugging Face hub shows.

The format is described at https://huggingface.co/docs/hub/session-traces-format. The messages are the steps of `atif`:
an observation is a message of the role tool for each result, and the arguments of a call are a JSON string. Subagents
are left out; the calls to them stay.
"""

import datetime
from collections.abc import Iterator

from weavegen import sql
from weavegen.exports import atif
from weavegen.exports.atif import Object, encoded, known
from weavegen.exports.format import Source, file_per_trace

ABOUT = ("job", "agent", "version", "model", "bootstrap", "status", "reward")


def text(source: Source, trace: int) -> Iterator[str]:
    """The session line by line."""
    [row] = sql.run(source.conn, "exports/atif-trace", trace=trace).mappings()
    begin = {"type": "session", "harness": "weavegen", "id": f"weavegen-trace-{trace}", "trace_id": trace}
    about = known({name: row[name] for name in ABOUT})
    yield encoded(begin | {"name": f"{row['job']}: trace {trace}"} | about) + "\n"
    for step in atif.steps(source, trace, "main", {}):
        for message in messages(step, row["model"]):
            yield encoded({"type": "message", "message": known(message)}) + "\n"


def messages(step: Object, model: str | None) -> Iterator[Object]:
    """A step as messages. A None is a field that is left out."""
    milliseconds = round(datetime.datetime.fromisoformat(step["timestamp"]).timestamp() * 1000)
    calls = []
    for call in step.get("tool_calls", ()):
        function = {"name": call["function_name"], "arguments": encoded(call["arguments"])}
        calls.append({"id": call["tool_call_id"], "function": function})
    yield {
        "role": "assistant" if step["source"] == "agent" else step["source"],
        "content": step["message"],
        "reasoningContent": step.get("reasoning_content"),
        "toolCalls": calls or None,
        "timestamp": milliseconds,
        "model": model if step["source"] == "agent" else None,
    }
    for result in step.get("observation", {"results": ()})["results"]:
        answer = {"role": "tool", "content": result["content"], "toolCallId": result.get("source_call_id")}
        yield answer | {"timestamp": milliseconds}


FORMAT = file_per_trace("sessions", "jsonl", text, loaded=True)
