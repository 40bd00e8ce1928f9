"""Block ↔ text: writes and parses the trace format. A trace is one Python file that compiles (docs/weave.md)."""

import re
from functools import cache

import lark

from weavegen.trace.blocks import COMMENTED, Block, BlockType, Label

RAN_QUESTION = "Does this block run without errors?"
_INVALID = "#invalid_syntax the block does not compile and is shown commented out"
_HEADERS = "subagent|startblock|index|timestamp|time_remaining|block_size|bm25_query|title|invalid_syntax"
_MARK = re.compile(rf"^#(?={_HEADERS}|q:|tags:|endblock)", re.MULTILINE)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def clean(text: str) -> str:
    """Replace characters that a Python file or Postgres can't hold: control characters and lone surrogates."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def normalise_body(type: BlockType, text: str) -> str:
    """`text` as the body of a block. Rendering and parsing a normalised body returns the same body.

    A line that looks like a header or footer line of the format gets a space after the hash.
    """
    text = clean(text)
    return text if type in COMMENTED else _MARK.sub("# ", text).strip("\n")


def one_line(text: str) -> str:
    """`text` in one line, for a header or footer."""
    return " ".join(clean(text).split())


def render_header(block: Block) -> str:
    """The lines before the body. The model reads them before it writes the block."""
    lines = [
        f"#subagent {block.subagent}",
        f"#startblock type: {block.type}",
        f"#index {block.index}",
        f"#timestamp {block.timestamp!r}",
        f"#time_remaining {block.time_remaining!r} seconds",
        None if block.block_size is None else f"#block_size {block.block_size}",
        None if block.bm25_query is None else f"#bm25_query {block.bm25_query}",
        None if block.title is None else f"#title {block.title}",
        None if block.compiles else _INVALID,
        None if block.tick_start is None else f"# Starting new tick with block #{block.tick_start}",
        None if block.working_directory is None else f"# Current Working Directory: {block.working_directory}",
    ]
    return "".join(f"{line}\n" for line in lines if line is not None)


def percent(probability: float) -> str:
    """A probability as a percentage with up to three decimals, such as `94.371`."""
    return f"{probability * 100:.3f}".rstrip("0").rstrip(".")


def render_label(label: Label) -> str:
    """A label's footer line: `#q: QUESTION Yes. (94.371%)`."""
    return f"#q: {label.question} {'Yes' if label.answer else 'No'}. ({percent(label.probability)}%)\n"


def render_block(block: Block) -> str:
    """The block's text, from its first header line to `#endblock` and the empty line after it."""
    body = block.body
    if body and (block.type in COMMENTED or not block.compiles):
        body = "\n".join("# " + line for line in body.split("\n"))
    parts = [
        render_header(block),
        f"{body}\n" if body else "",
        "" if block.label is None else render_label(block.label),
        "" if block.ran is None else f"#q: {RAN_QUESTION} {'Yes' if block.ran else 'No'}.\n",
        f"#tags: {' '.join(block.tags)}\n" if block.tags else "",
        "#endblock\n\n",
    ]
    return "".join(parts)


@cache
def _parser() -> lark.Lark:
    return lark.Lark.open("grammars/trace.lark", rel_to=__file__, parser="lalr", lexer="contextual")


def parse_trace(text: str) -> list[Block]:
    """The blocks of a rendered trace. Raises lark.UnexpectedInput if the text is not a trace."""
    return [_block(tree) for tree in _parser().parse(text).find_data("block")]


def _block(tree: "lark.Tree[lark.Token]") -> Block:
    lines = {token.type: str(token)[:-1] for token in tree.scan_values(lambda value: isinstance(value, lark.Token))}
    values = {name: line.partition(" ")[2] for name, line in lines.items()}
    type = BlockType((values.get("START") or values["TICK_TYPE"]).removeprefix("type: "))
    compiles = "INVALID" not in values
    body = lines.get("BODY", "")
    if type in COMMENTED or not compiles:
        body = "\n".join(line.removeprefix("# ") for line in body.split("\n"))
    return Block(
        type=type,
        body=body,
        subagent=values["SUBAGENT"],
        index=int(values["INDEX"]),
        timestamp=float(values["TIMESTAMP"]),
        time_remaining=float(values["TIME_REMAINING"].removesuffix(" seconds")),
        block_size=int(values["BLOCK_SIZE"]) if "BLOCK_SIZE" in values else None,
        bm25_query=values.get("BM25_QUERY"),
        title=values.get("TITLE"),
        tick_start=int(lines["TICK"].rpartition("#")[2]) if "TICK" in lines else None,
        working_directory=lines["DIRECTORY"].partition(": ")[2] if "DIRECTORY" in lines else None,
        compiles=compiles,
        label=_label(values["LABEL"]) if "LABEL" in values else None,
        ran=values["RAN"].endswith(" Yes.") if "RAN" in values else None,
        tags=tuple(values["TAGS"].split(" ")) if values.get("TAGS") else (),
    )


def _label(line: str) -> Label:
    question, percentage = line.removesuffix("%)").rsplit(" (", 1)
    answer = question.endswith(" Yes.")
    question = question.removesuffix(" Yes." if answer else " No.")
    return Label(question, answer, round(float(percentage) / 100, 5))
