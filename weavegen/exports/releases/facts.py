"""What a release records about its rows and the traces that they come from."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weavegen.database import Connection
from weavegen.exports.card import read_origin
from weavegen.exports.format import Key
from weavegen.exports.releases.manifest import SHOWN, digest
from weavegen.exports.releases.near_duplicates import Double, Unit, jaccard
from weavegen.store import releases

DEFAULT_THRESHOLD = 0.8
"""A retrieved block this similar counts as the text written after it; a release's own threshold replaces it."""


def units(
    conn: Connection, view: str, key: Sequence[str], groups: Iterable[tuple[int, Iterable[Key]]]
) -> Iterator[Unit]:
    """Rows to compare, trace by trace: what the model itself wrote, without what it read.

    Rows about questions are compared only with rows about the same question, by the text that each is about.
    """
    columns = releases.text_columns(key)
    places = [key.index(column) for column in columns] or [0]
    for trace, keys in groups:
        rows = releases.texts(conn, columns, trace)
        questions = releases.questions(conn, view, key, trace) if "label_id" in key else {}
        for row_key in keys:
            parts = [rows[row_key[place]] for place in places if row_key[place] in rows]
            text = "\n".join(part.text or "" for part in parts)
            question, text = questions.get(tuple(row_key), ("", text))
            yield Unit(tuple(row_key), text, parts[0].reward if parts else None, question)


def contamination(
    conn: Connection,
    traces: Sequence[int],
    removed: Sequence[Double],
    threshold: float | None,
    split: Callable[[int], str],
) -> dict[str, Any]:
    """Which retrieved blocks the model should not have been shown in these traces.

    `split` gives the split of a trace; `removed` says which traces have near-duplicate rows.
    """
    inside = set(traces)
    twins = {frozenset((row.key[0], row.like[0])) for row in removed if row.key[0] != row.like[0]}
    counts = {"shown": 0, "from_other_traces": 0, "examples": 0}
    kinds = ("future", "other_split", "itself", "near_duplicate", "outside")
    findings: dict[str, dict[str, Any]] = {kind: {"count": 0, "examples": []} for kind in kinds}
    for row in releases.about(conn, "store/release_retrieved_blocks", traces):
        if row.block_id is None:
            counts["examples"] += 1
            continue
        other = row.source != row.trace_id
        counts["shown"] += 1
        counts["from_other_traces"] += other
        found = {
            "future": row.future,
            "itself": row.written is not None and jaccard(row.body, row.written) >= (threshold or DEFAULT_THRESHOLD),
            "outside": other and row.source not in inside,
            "other_split": other and split(row.source) != split(row.trace_id),
            "near_duplicate": frozenset((row.source, row.trace_id)) in twins,
        }
        for finding in (findings[kind] for kind in kinds if found[kind]):
            finding["count"] += 1
            if finding["count"] <= SHOWN:
                finding["examples"].append({"trace": row.trace_id, "shown": row.block_id, "shown_from": row.source})
    return counts | findings


def origins(conn: Connection, traces: Sequence[int]) -> dict[str, Any]:
    """What the manifest says of the traces: models ('': a job named none), versions, rubrics, settings by job."""
    origin = read_origin(conn, traces)
    names = {
        "models": origin.models | ({""} if origin.unnamed else set()),
        "written_by": origin.versions,
        "rubrics": {row.rubric for row in releases.about(conn, "store/release_rubrics", traces)},
    }
    settings: dict[str, dict[str, str]] = {}
    for row in releases.about(conn, "store/release_settings", traces):
        value = {"agent": row.agent, "model": row.model, "settings": row.settings}
        settings.setdefault(str(row.job_id), {})[str(row.revision)] = digest(value)
    return {name: sorted(values) for name, values in names.items()} | {"settings": settings}
