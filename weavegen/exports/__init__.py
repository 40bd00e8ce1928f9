"""Exports write the corpus in the formats that trainers read. A file here has one format, or a few similar ones.

write.py is the entry point, format.py says what a format is, docs/exports.md describes each one.
"""

from weavegen.errors import required
from weavegen.exports import atif, atropos, labelled, retrieval, sessions, text, trajectories, tree, trials
from weavegen.exports.format import DECLARED, Format

MODULES = (atif, atropos, labelled, retrieval, sessions, text, trajectories, tree, trials)
_made = {made.name: made for module in MODULES for made in vars(module).values() if isinstance(made, Format)}
FORMATS: dict[str, Format] = {name: _made[name] for name in DECLARED if name in _made}
"""The formats by name, in the order of formats.toml."""


def find(name: str) -> Format:
    """The format with this name. Raises UsageError."""
    return required(FORMATS.get(name), f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
