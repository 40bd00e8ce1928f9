"""The text of whole traces."""

from collections.abc import Iterable

from weavegen.trace.blocks import Block
from weavegen.trace.render import render_block


def render_trace(blocks: Iterable[Block]) -> str:
    """The trace's text: one Python file."""
    return "".join(map(render_block, blocks))
