"""Annotations: what people say about traces, blocks and candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError, required

VERDICTS = ("good", "bad")
MAX_LABELS = 20
MAX_LABEL_CHARS = 100
MAX_NOTE_CHARS = 4_000


@dataclass(frozen=True)
class Place:
    """What is annotated: a candidate, else a block, else a whole trace."""

    trace: int
    index: int | None = None
    """Index of the block."""
    candidate: int | None = None


def save(
    conn: Connection, place: Place, author: str, *, verdict: str = "", labels: Sequence[str] = (), note: str = ""
) -> dict[str, Any]:
    """Write a person's annotation in place of an earlier one, or remove that if verdict, labels and note are empty.

    Returns the trace_id, block_id and candidate_id that it is stored with. Raises UsageError.
    """
    if verdict not in ("", *VERDICTS):
        raise UsageError(f"a verdict is {' or '.join(VERDICTS)}, and not {verdict!r:.40}")
    labels = list(dict.fromkeys(label for label in labels if label.strip("! ")))
    if len(labels) > MAX_LABELS or any(len(label) > MAX_LABEL_CHARS for label in labels):
        raise UsageError(f"give at most {MAX_LABELS} labels of at most {MAX_LABEL_CHARS} characters")
    if len(note) > MAX_NOTE_CHARS:
        raise UsageError(f"a note has at most {MAX_NOTE_CHARS:,} characters")
    values = {"verdict": verdict or None, "labels": labels, "note": note, "empty": not (verdict or labels or note)}
    about = sql.run(conn, "store/save_annotation", author=author, **vars(place), **values).mappings()
    return required(next(iter(about), None), f"there is nothing to annotate at {vars(place)}")
