"""The simulated model goes on with a half-written block as if it had written the first part, too."""

import pytest

from simulation import complete, policies
from simulation.policies.situation import read
from tests.support.policies import BOOTSTRAP, OPEN, PREFIX, WRITTEN, base, is_fine
from weavegen.kernel import context, prompts
from weavegen.trace.blocks import PROSE, BlockType


def grown(type: BlockType, bootstrap: str, seed: int, tokens: int) -> tuple[str, int]:
    """A block written in pieces, and how many it took."""
    stems = prompts.stems(type)
    body = PREFIX.get(type, '"""') + (stems[seed % len(stems)] if stems else "")
    prompt = base(type, OPEN, bootstrap=bootstrap)
    for number in range(1, 60):
        text, _, reason, _ = complete.cut(policies.write(read(prompt + body), seed, number), context.STOP, tokens)
        if reason == "stop":
            return body + text, number
        body += context.without_begun_stop(text)
    pytest.fail(f"it does not end: {body}")


@pytest.mark.parametrize("bootstrap", [BOOTSTRAP, "# another task\n"])
@pytest.mark.parametrize("type", WRITTEN)
def test_most_blocks_written_in_pieces_have_their_shape(type: BlockType, bootstrap: str) -> None:
    found = [grown(type, bootstrap, seed, 16) for seed in range(30)]
    assert max(pieces for _, pieces in found) > 3
    assert sum(is_fine(type, body) for body, _ in found) >= 10
    assert found == [grown(type, bootstrap, seed, 16) for seed in range(30)]


@pytest.mark.parametrize("type", [BlockType.ACTION, *sorted(PROSE)])
def test_what_it_would_never_have_written_it_merely_ends(type: BlockType) -> None:
    body = PREFIX.get(type, '"""') + "purple elephants, of all things, "
    text, _, reason, _ = complete.cut(policies.write(read(base(type, OPEN) + body), 1, 0), context.STOP, 768)
    assert (text, reason) == ("", "stop")
