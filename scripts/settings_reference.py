"""`make settings`: writes docs/settings.md from weavegen/kernel/settings.py.

Every setting has its type, default, range and meaning.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from weavegen.kernel import settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
FIRST = """# Settings

Written by `make settings` from `weavegen/kernel/settings.py`.

    weavegen enqueue bootstraps/sums.py --set temperature=0.8 --set action.rounds=[4,16]

`--set KEY=VALUE` sets a value for a job, `--set TYPE.KEY=VALUE` for the blocks of one type. `weavegen retune` changes
the settings of a job that runs.
"""
BLOCKS = """
## For a block

Each of these can also be set for one block type. The types are
{types}.
"""
TRACES = """
## For a trace
"""
OWN = """
## Defaults of single block types and searches

A value that is set for all types takes their place.

| | |
|---|---|
"""


class Setting(NamedTuple):
    """A setting, as the code defines it."""

    section: str
    name: str
    type: str
    default: str
    meaning: str


def read(kind: type) -> Iterator[Setting]:
    """The settings of a class, in order. A meaning is the comment behind a field, or the string below it."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    [tree] = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above = (line.strip() for line in reversed(lines[: node.lineno - 1]))
        section = next(line for line in above if line.startswith("# "))
        meaning = lines[node.lineno - 1].partition("  # ")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = inspect.cleandoc(str(after.value.value))
        assert node.value is not None
        default = json.dumps(ast.literal_eval(node.value)).strip('"')
        meaning = re.sub(r"\b(None|False|True):", lambda word: json.dumps(ast.literal_eval(word[1])) + ":", meaning)
        yield Setting(section[2:], node.target.id, ast.unparse(node.annotation), default, " ".join(meaning.split()))


def table(found: list[Setting]) -> str:
    """A table for each section."""
    text = ""
    for section in dict.fromkeys(one.section for one in found):
        text += (
            f"\n### {section.split('.')[0]}\n\n| setting | type | default | range | meaning |\n|---|---|---|---|---|\n"
        )
        for one in found:
            if one.section == section:
                cells = (f"`{one.name}`", words(one.type), f"`{one.default}`", allowed(one.name), one.meaning)
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


def words(annotation: str) -> str:
    """A type in words."""
    if choice := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return ", ".join(f"`{name.strip(chr(39))}`" for name in choice[1].split(", "))
    known = {
        "int": "whole number",
        "float": "number",
        "bool": "`true` or `false`",
        "tuple[int, ...]": "list of whole numbers",
        "dict[str, dict[str, Any]]": "object of objects",
        "dict[str, tuple[float, float]]": "object of pairs of numbers",
    }
    base, optional, _ = annotation.partition(" | None")
    return known[base] + (", or `null`" if optional else "")


def allowed(name: str) -> str:
    """The smallest and largest allowed value, if the setting has limits of its own."""
    least, most = settings.LEAST.get(name), settings.MOST.get(name)
    return " ".join([*([] if least is None else [f"from {least}"]), *([] if most is None else [f"to {most:,}"])])


def page() -> str:
    """The whole page."""
    types = ", ".join(f"`{name}`" for name in settings.WRITTEN)
    own = {f"`{name}`": values for name, values in settings.OF_TYPE.items()}
    own |= {f"`search={name}`": values for name, values in settings.OF_SEARCH.items()}
    rows = "".join(
        f"| {name} | {', '.join(f'`{key}={value}`' for key, value in values.items())} |\n"
        for name, values in own.items()
    )
    return (
        FIRST
        + BLOCKS.format(types=types)
        + table(list(read(settings.BlockSettings)))
        + TRACES
        + table(list(read(settings.Settings)))
        + OWN
        + rows
    )


if __name__ == "__main__":
    PAGE.write_text(page())
