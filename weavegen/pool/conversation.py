"""Pieces of prompts, and a message of a conversation as the model reads it: with the very tokens that it sampled."""

from dataclasses import dataclass

from weavegen.kernel import context
from weavegen.kernel.template import Template
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Text, Tokens, joined, locate_message_end
from weavegen.trace.blocks import BlockType


@dataclass
class Piece:
    """A block as the model reads it, and its tokens once a server has told them."""

    text: str
    """As it is rendered; of a message, what it says."""
    type: BlockType | None = None
    """Of a block in a conversation."""
    sampled: list[int] | None = None
    """Ids of the tokens of a message that the model wrote."""
    tokens: Tokens | None = None
    after: BlockType | None = None
    """Of a message: type of the message that it followed when it was tokenised; None: it was the first."""
    stored: bool = False
    """Whether its tokens are in the database, as far as this process knows."""


def message(piece: Piece, template: Template, client: ModelClient, after: BlockType | None) -> Text | Tokens:
    """A message as the model reads it, with the tokens that it sampled. `after`: type of the one before, if any."""
    assert piece.type is not None
    bos = after is None and template.bos
    if piece.sampled is not None and client.tokenizer:
        close = context.closing(piece.type, template)
        found = locate_message_end(piece.sampled, piece.text, close, client.decode)
        if found is not None:
            kept, rest = found
            opening = client.encode(context.opening(piece.type, template, after), bos=bos)
            own = [opening, Tokens.of(piece.sampled[:kept])]
            return joined([*own, client.encode(rest)] if rest else own)  # type: ignore[return-value]
    return client.piece(context.spoken(piece.type, piece.text, template, after), bos=bos)
