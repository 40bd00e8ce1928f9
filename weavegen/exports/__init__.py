"""Exports write the corpus in the formats that trainers read. Each format is a file of this folder.

write.py is the way in, format.py says what a format is, docs/exports.md describes each one.
"""

from weavegen.errors import UsageError
from weavegen.exports import (
    atif,
    atropos,
    dpo,
    grpo,
    kto,
    retrieval,
    sft,
    stepwise,
    text,
    trace_files,
    trajectories,
    verifier,
)
from weavegen.exports.format import FileFormat, Format, Options, RowFormat

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        text.FORMAT,
        sft.FORMAT,
        dpo.FORMAT,
        kto.FORMAT,
        grpo.FORMAT,
        stepwise.FORMAT,
        verifier.FORMAT,
        atropos.FORMAT,
        trajectories.MESSAGES,
        trajectories.TRAJECTORIES,
        retrieval.FORMAT,
        trace_files.PY,
        trace_files.JSON,
        atif.FORMAT,
    )
}


def find(name: str) -> Format:
    """The format with this name. Raises UsageError."""
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "FileFormat", "Format", "Options", "RowFormat", "find"]
