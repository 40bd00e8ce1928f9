"""Block ↔ text: the trace format, both ways. A trace is one Python file that compiles."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import lark

from weavegen.trace.blocks import COMMENTED, Block, BlockType, Label

RAN_QUESTION = "Does this block run without errors?"
_INVALID = "#invalid_syntax the block does not compile and is shown commented out"
_HEADERS = "subagent|startblock|index|timestamp|time_remaining|block_size|bm25_query|title|invalid_syntax"
_MARK = re.compile(rf"^#(?={_HEADERS}|q:|tags:|endblock)", re.MULTILINE)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without what neither a Python file nor Postgres can hold: control characters, lone surrogates."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def normalise_body(type: BlockType, text: str) -> str:
    """`text` as a block's body can hold it: what is stored is what is rendered, and parses back.

    Lines that would read as the format's own marks get a space after the hash.
    """
    text = clean(text)
    return text if type in COMMENTED else _MARK.sub("# ", text).strip("\n")


def one_line(text: str) -> str:
    """`text` for a header or footer line."""
    return " ".join(clean(text).split())


def render_header(block: Block) -> str:
    """The lines before the body, as the model sees them before it writes the block."""
    lines = [f"#subagent {block.subagent}", f"#startblock type: {block.type}", f"#index {block.index}"]
    lines.append(f"#timestamp {block.timestamp!r}")
    lines.append(f"#time_remaining {block.time_remaining!r} seconds")
    if block.block_size is not None:
        lines.append(f"#block_size {block.block_size}")
    if block.bm25_query is not None:
        lines.append(f"#bm25_query {block.bm25_query}")
    if block.title is not None:
        lines.append(f"#title {block.title}")
    if not block.compiles:
        lines.append(_INVALID)
    if block.tick_start is not None:
        lines.append(f"# Starting new tick with block #{block.tick_start}")
    if block.working_directory is not None:
        lines.append(f"# Current Working Directory: {block.working_directory}")
    return "\n".join(lines) + "\n"


def _percent(probability: float) -> str:
    return f"{probability * 100:.3f}".rstrip("0").rstrip(".")


def render_label(label: Label) -> str:
    """A drawn answer: `#q: QUESTION Yes. (94.371%)`."""
    return f"#q: {label.question} {'Yes' if label.answer else 'No'}. ({_percent(label.probability)}%)\n"


def render_block(block: Block) -> str:
    """The block's text, from its first header line to `#endblock` and the empty line after it."""
    body = block.body
    if body and (block.type in COMMENTED or not block.compiles):
        body = "\n".join("# " + line for line in body.split("\n"))
    parts = [render_header(block)]
    if body:
        parts.append(body + "\n")
    if block.label is not None:
        parts.append(render_label(block.label))
    if block.ran is not None:
        parts.append(f"#q: {RAN_QUESTION} {'Yes' if block.ran else 'No'}.\n")
    if block.tags:
        parts.append("#tags: " + " ".join(block.tags) + "\n")
    parts.append("#endblock\n\n")
    return "".join(parts)


@cache
def _parser() -> lark.Lark:
    grammar = (Path(__file__).parent / "grammars" / "trace.lark").read_text()
    return lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=False)


def parse_trace(text: str) -> list[Block]:
    """The blocks of a rendered trace. Raises lark.UnexpectedInput where the text is no trace."""
    return [_block(tree) for tree in _parser().parse(text).find_data("block")]


def _block(tree: "lark.Tree[lark.Token]") -> Block:
    lines: dict[str, list[str]] = {}
    for token in tree.scan_values(lambda value: isinstance(value, lark.Token)):
        lines.setdefault(token.type, []).append(str(token)[:-1])

    def first(name: str, prefix: str) -> str | None:
        found = lines.get(name)
        return found[0].removeprefix(prefix) if found else None

    def need(name: str, prefix: str) -> str:
        value = first(name, prefix)
        assert value is not None, f"the grammar demands {name}"
        return value

    type = BlockType(first("START", "#startblock type: ") or need("TICK_TYPE", "#startblock type: "))
    compiles = "INVALID" not in lines
    body = lines["BODY"][0].split("\n") if "BODY" in lines else []
    if type in COMMENTED or not compiles:
        body = [line.removeprefix("# ") for line in body]
    size, tick = first("BLOCK_SIZE", "#block_size "), first("TICK", "# Starting new tick with block #")
    tags = first("TAGS", "#tags: ")
    return Block(
        type=type,
        body="\n".join(body),
        subagent=need("SUBAGENT", "#subagent "),
        index=int(need("INDEX", "#index ")),
        timestamp=float(need("TIMESTAMP", "#timestamp ")),
        time_remaining=float(need("TIME_REMAINING", "#time_remaining ").removesuffix(" seconds")),
        block_size=int(size) if size else None,
        bm25_query=first("BM25_QUERY", "#bm25_query "),
        title=first("TITLE", "#title "),
        tick_start=int(tick) if tick else None,
        working_directory=first("DIRECTORY", "# Current Working Directory: "),
        compiles=compiles,
        label=_label(first("LABEL", "#q: ")),
        ran=_ran(first("RAN", "#q: ")),
        tags=tuple(tags.split(" ")) if tags else (),
    )


def _label(line: str | None) -> Label | None:
    if line is None:
        return None
    question, percent = line.removesuffix("%)").rsplit(" (", 1)
    answer = question.endswith(" Yes.")
    question = question.removesuffix(" Yes." if answer else " No.")
    return Label(question, answer, round(float(percent) / 100, 5))


def _ran(line: str | None) -> bool | None:
    return None if line is None else line.endswith(" Yes.")


def render_trace(blocks: Iterable[Block]) -> str:
    """One Python file."""
    return "".join(map(render_block, blocks))
