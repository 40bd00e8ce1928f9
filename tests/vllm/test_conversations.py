"""Conversations on a real server: the next prompt contains exactly the tokens that were sampled."""

from weavegen.engine.prompt_assembly import Piece, message
from weavegen.kernel import context
from weavegen.kernel.settings import Settings
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Tokens, joined
from weavegen.trace.blocks import BlockType

READ = ((BlockType.SYSTEM, "Be brief."), (BlockType.USER, "Say something, then something else."))


def test_a_message_is_read_again_with_its_sampled_tokens(client: ModelClient) -> None:
    any_end = Settings(message_open="<{role}>\n")

    def prompt(s: Settings) -> Tokens:
        pieces = [message(Piece(text, type), s, client, begins=not n) for n, (type, text) in enumerate(READ)]
        told = joined([*pieces, client.piece(context.opening(BlockType.ASSISTANT, s))])
        assert isinstance(told, Tokens)
        return told

    def sample(s: Settings, seed: int, tokens: int = 80) -> tuple[str, list[int]]:
        [found] = client.sample(
            prompt(any_end), n=1, max_tokens=tokens, temperature=1.0, top_k=-1, repetition_penalty=1.0, seed=seed,
            stop=(s.message_close,),
        ).continuations  # fmt: skip
        assert found.token_ids is not None
        return found.text, found.token_ids

    kept = 0
    for seed in range(12):
        whole, _ = sample(Settings(message_close="\x01never"), seed)
        # A random model never writes the template's end, so a string in the middle of its text is used as the end.
        end = whole[len(whole) // 2 :][:3]
        s = Settings(message_open="<{role}>\n", message_close=f"{end}\n")
        text, ids = sample(Settings(message_close=end), seed)
        assert end not in text
        piece = message(Piece(text, BlockType.ASSISTANT, ids), s, client, begins=False)
        opening = client.encode("<assistant>\n")
        assert isinstance(piece, Tokens)
        assert piece.ids[: opening.count] == opening.ids
        own = piece.ids[opening.count :]
        same = next((n for n, (a, b) in enumerate(zip(own, ids, strict=False)) if a != b), min(len(own), len(ids)))
        assert same >= len(ids) - 3  # except for a token that is longer than the template's end
        assert client.decode(piece.ids) == f"<assistant>\n{text}{end}\n"
        kept += same
    assert kept > 100
