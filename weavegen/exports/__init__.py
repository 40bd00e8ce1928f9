"""Exports: the corpus in the formats that trainers read. A file for each format, and what they share.

`write.export` is the way in; format.py says what a format is, docs/exports.md what each one holds.
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
    one.name: one
    for one in (
        text.FORMAT,
        sft.FORMAT,
        dpo.FORMAT,
        kto.FORMAT,
        grpo.FORMAT,
        stepwise.FORMAT,
        verifier.FORMAT,
        atropos.FORMAT,
        trajectories.FORMAT,
        trajectories.TOKENS,
        retrieval.FORMAT,
        trace_files.PY,
        trace_files.JSON,
        atif.FORMAT,
    )
}


def find(name: str) -> Format:
    """A format by its name. Raises UsageError."""
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}: choose of {', '.join(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "FileFormat", "Format", "Options", "RowFormat", "find"]
