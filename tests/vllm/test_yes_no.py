"""Mass of yes and of no, compared with the softmax over the whole vocabulary."""

import math

import pytest

from tests.support.vllm_server import Forward
from weavegen.pool import yes_no
from weavegen.pool.client import ModelClient

QUESTIONS = [
    "<s> [INST] a lamp, a chessboard [/INST]\n#q: Is there a lamp? ",
    "<s> [INST] a lamp, a chessboard [/INST]\n#q: Is there a duck, or would the agent rather have one? ",
    "<s> #q: Is a coin fair? Yes. (50%)\n#q: Is this right?",
]


@pytest.fixture(scope="module")
def sides(client: ModelClient) -> dict[int, bool]:
    """Token ids that the client asks for, and whether they mean yes."""
    found: dict[int, bool] = {}
    for text in yes_no.variants():
        ids, meant = client.encode(text).ids, yes_no.side(text)
        if len(ids) == 1 and meant is not None:
            found[ids[0]] = meant
    assert set(found.values()) == {True, False}
    return found


@pytest.fixture(scope="module")
def softmax(client: ModelClient, forward: Forward) -> list[list[float]]:
    """Logprobs of the whole vocabulary after each question, by a plain forward pass."""
    return forward([client.encode(question).ids for question in QUESTIONS])["next"]


@pytest.mark.parametrize("as_ids", [False, True], ids=["text", "ids"])
def test_mass_is_exact(client: ModelClient, sides: dict[int, bool], softmax: list[list[float]], as_ids: bool) -> None:
    """The sums over the requested tokens and the likeliest one, which is always returned."""
    answers = client.yes_no([client.encode(question) for question in QUESTIONS] if as_ids else QUESTIONS)
    for answer, logprobs in zip(answers, softmax, strict=True):
        assert math.fsum(math.exp(logprob) for logprob in logprobs) == pytest.approx(1, rel=1e-4)
        likeliest = max(range(len(logprobs)), key=logprobs.__getitem__)
        meant = sides | {likeliest: sides.get(likeliest, yes_no.side(client.word(likeliest)))}
        for mass, wanted in ((answer.yes, True), (answer.no, False)):
            expected = math.fsum(math.exp(logprobs[token]) for token, side in meant.items() if side is wanted)
            assert mass == pytest.approx(expected, rel=1e-3)
    assert len({round(math.log(answer.yes), 2) for answer in answers}) == len(QUESTIONS)


def test_all_plain_answers_are_requested(client: ModelClient, sides: dict[int, bool]) -> None:
    """Every spelling of yes and no in the vocabulary, with any leading mark, is requested."""
    asked = {client.word(token) for token in sides}
    vocabulary = [client.word(token) for token in range(3, 2048)]
    assert {text for text in vocabulary if text.strip(" \n\"'(*_:.").lower() in ("yes", "no")} <= asked


def test_one_prompt_gives_the_same_as_several(client: ModelClient) -> None:
    together = client.yes_no(QUESTIONS)
    for answer, alone in zip(together, (client.yes_no([question])[0] for question in QUESTIONS), strict=True):
        assert (answer.yes, answer.no) == pytest.approx((alone.yes, alone.no), rel=1e-3)
    assert client.yes_no([]) == []
