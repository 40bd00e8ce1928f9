"""Exports write the corpus in the formats that trainers read. A file of this folder has one format, or a few like ones.

write.py is the way in, format.py says what a format is, docs/exports.md describes each one.
"""

from weavegen.errors import UsageError
from weavegen.exports import atif, atropos, labelled, retrieval, samples, sessions, text, trajectories, tree, trials
from weavegen.exports.format import Format

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        text.TEXTS,
        labelled.SFT,
        samples.DPO,
        labelled.KTO,
        samples.GRPO,
        labelled.STEPWISE,
        labelled.VERIFIER,
        atropos.FORMAT,
        trajectories.MESSAGES,
        trajectories.TRAJECTORIES,
        tree.FORMAT,
        retrieval.FORMAT,
        text.PY,
        text.JSON,
        atif.FORMAT,
        trials.FORMAT,
        sessions.FORMAT,
    )
}


def find(name: str) -> Format:
    """The format with this name. Raises UsageError."""
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
