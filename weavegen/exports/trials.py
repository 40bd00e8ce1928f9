"""`harbor`: the folder of a trial, as Harbor writes it, for each trace of a Harbor task.

    TRIAL/config.json             how the trial was run
    TRIAL/result.json             the result
    TRIAL/agent/trajectory.json   the format `atif`
    TRIAL/agent/candidates.jsonl  all samples, rejected ones too; not Harbor's (docs/decisions/exports.md)
    TRIAL/verifier/               what the tests printed, and the rewards; for a task of several steps in steps/NAME/

Names and meaning are those of Harbor's models (harbor.models.trial); sql/trial.sql makes the objects. A trace that was
not evaluated has an exception in place of a reward.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from weavegen import sql
from weavegen.exports import atif
from weavegen.exports.atif import encoded
from weavegen.exports.format import File, FileFormat, Source, declared
from weavegen.exports.text import blocks


def files(source: Source, trace: int) -> Iterator[File]:
    """The files of a trace's trial."""
    row = sql.run(source.conn, "exports/trial", trace=trace).one()
    yield f"{row.trial}/config.json", [pretty(row.config)]
    yield f"{row.trial}/result.json", [pretty(row.result)]
    yield f"{row.trial}/agent/trajectory.json", atif.text(source, trace)
    candidates = (f"{one.line}\n" for one in blocks(source.conn, "trial-candidates", trace, by="candidate_id"))
    yield f"{row.trial}/agent/candidates.jsonl", candidates
    for verified in row.folders or ():
        place = f"{row.trial}/steps/{verified['step']}" if verified["step"] else row.trial
        yield f"{place}/verifier/test-stdout.txt", [verified["output"]]
        if verified["rewards"]:
            yield f"{place}/verifier/reward.json", [pretty(verified["rewards"])]


def pretty(value: Any) -> str:
    return msgspec.json.format(encoded(value), indent=4) + "\n"


FORMAT = FileFormat(
    **declared("harbor"),
    path="TASK__ID/config.json, result.json, agent/, verifier/",
    files=files,
    narrow=lambda options: "exists (select from traces t where t.id = trace_id and t.harbor_task_id is not null)",
)
