"""Conversations on a real server: the next prompt contains exactly the tokens that were sampled."""

from weavegen.kernel.template import PLAIN, Template
from weavegen.pool.client import ModelClient
from weavegen.pool.conversation import Piece, message
from weavegen.pool.tokens import Tokens, joined
from weavegen.trace.blocks import BlockType

READ = ((BlockType.SYSTEM, "Be brief."), (BlockType.USER, "Say something, then something else."))


def test_a_message_is_read_again_with_its_sampled_tokens(client: ModelClient) -> None:
    opening = "<assistant>\n"

    def prompt() -> Tokens:
        [system, user] = [Piece(text, type) for type, text in READ]
        pieces = [message(system, PLAIN, client, None), message(user, PLAIN, client, BlockType.SYSTEM)]
        told = joined([*pieces, client.piece(opening)])
        assert isinstance(told, Tokens)
        return told

    def sample(end: str, seed: int, tokens: int = 80) -> tuple[str, list[int]]:
        [found] = client.sample(
            prompt(), n=1, max_tokens=tokens, temperature=1.0, top_k=-1, repetition_penalty=1.0, seed=seed,
            stop=(end,),
        ).continuations  # fmt: skip
        assert found.token_ids is not None
        return found.text, found.token_ids

    kept = 0
    for seed in range(12):
        whole, _ = sample("\x01never", seed)
        # A random model never writes the template's end, so a string in the middle of its text is used as the end.
        end = whole[len(whole) // 2 :][:3]
        template = Template(assistant_open=opening, assistant_close=f"{end}\n")
        text, ids = sample(end, seed)
        assert end not in text
        piece = message(Piece(text, BlockType.ASSISTANT, ids), template, client, BlockType.USER)
        begins = client.encode(opening)
        assert isinstance(piece, Tokens)
        assert piece.ids[: begins.count] == begins.ids
        own = piece.ids[begins.count :]
        same = next((n for n, (a, b) in enumerate(zip(own, ids, strict=False)) if a != b), min(len(own), len(ids)))
        assert same >= len(ids) - 3  # except for a token that is longer than the template's end
        assert client.decode(piece.ids) == f"<assistant>\n{text}{end}\n"
        kept += same
    assert kept > 100
