"""The sequences on which a model is trained from scratch, and the tokens in them that it learns to write."""

import random

import numpy as np
import pytest
from tokenizers import Tokenizer

from pretraining import sequences, tokenizer
from tests.support.game_traces import ORIENT, SIMPLE, action, block, tick, trace
from tests.support.rendering import render_trace
from tests.support.templates import MISTRAL
from weavegen.errors import UsageError
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.kernel import context
from weavegen.kernel.context import PINNED, question_suffix
from weavegen.kernel.steps import Prompt
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import parse_trace, render_block
from weavegen.training.plan import IGNORED


def blocks() -> list[str]:
    ticks = [tick(2, number % 9, yes=0.9 - 0.6 * (number % 4 == 0)) for number in range(60)]
    return [render_block(one) for blocks in ticks for one in blocks]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return tokenizer.train(blocks(), 800)


def test_a_prompt_is_the_trace_up_to_the_models_continuation(words: Tokenizer) -> None:
    *before, orient, act, _ = tick(2, 4)
    prompt = Prompt(type=BlockType.ACTION, window=(2, 5), header="", prefix="def action_")
    header = "#subagent main\n#startblock type: action\n#index 5\n#timestamp 1.5\n#block_size 768\n"
    sent = [MISTRAL.block_open + render_block(before[0]), *map(render_block, [*before[1:], orient])]
    sent += [context.retrieved([(BlockType.ACTION, render_block(act))])]
    sent += [context.asked(prompt, MISTRAL) + header, "def action_", "take_cell_4(self):\n    return move(4)"]
    sent += [question_suffix("", SIMPLE)]
    read = [number for text in sent for number in words.encode(text, add_special_tokens=False).ids]
    shown = words.decode(read, skip_special_tokens=False)
    assert shown == (
        "<s>#startblock type: task-reminder\n# Problem map:\n# - main: in progress\n#endblock\n\n"
        "#startblock type: observation\n#title Board\n# 0 | 1 | 4\n#endblock\n\n"
        '#startblock type: orientation\n#bm25_query +cell take\n"""\nI take cell 4.\n"""\n'
        f"#q: {ORIENT} Yes.\n#endblock\n\n"
        f"#startblock type: action\ndef action_take_cell_4(self):\n    return move(4)\n#q: {SIMPLE} "
    )


def test_equal_texts_give_an_equal_tokenizer(words: Tokenizer) -> None:
    assert tokenizer.train(blocks(), 800).to_str() == words.to_str()


def test_answers_are_single_tokens_and_questions_are_whole_phrases(words: Tokenizer) -> None:
    for text in ("Yes", "No", "7", '"""', f"#q: {SIMPLE} "):
        assert len(words.encode(text, add_special_tokens=False).ids) == 1, text
    assert len(words.encode("4711", add_special_tokens=False).ids) == 4


def test_traces_without_both_answers_are_too_few() -> None:
    with pytest.raises(UsageError, match="enqueue more traces"):
        tokenizer.train([render_block(one) for one in tick(2, 4)], 500)


@pytest.mark.parametrize(
    ("how", "imitated"),
    [
        ({}, True),
        ({"ran": False}, False),
        ({"yes": 0.3}, False),
        ({"compiles": False, "ran": None}, False),
        ({"ran": None}, True),
    ],
)
def test_only_good_blocks_are_taught_but_answers_always_are(
    words: Tokenizer, how: dict[str, object], imitated: bool
) -> None:
    text = render_trace([block(BlockType.GENESIS, 0, ""), block(BlockType.BOOTSTRAP, 1, ""), *tick(2, 5, **how)])
    chance = random.Random(1)
    chance.random = lambda: 0.99  # type: ignore[method-assign]  # no question is left out
    found = list(sequences.pieces(parse_trace(text)[PINNED:], words, chance))
    assert [piece.type for piece in found] == [one.type for one in tick(2, 5)]
    taught = [words.decode([number for number in piece.labels if number != IGNORED]) for piece in found]
    assert taught[0] == taught[1] == taught[4] == ""
    assert taught[2] == f'+cell take\n"""\nI take cell 5.\n"""\n#q: {ORIENT} Yes'
    answers = "".join(f"#q: {SIMPLE} " * imitated + ("No" if how.get("yes") == 0.3 else "Yes"))
    if how.get("ran", True) is not None:
        answers += "Yes" if how.get("ran", True) else "No"
    body = 'def action_take_cell_5(self):\n    return move(5)\n\nself.add_action("Take", action_take_cell_5)\n'
    assert taught[3] == body * imitated + answers


def test_an_executed_action_sometimes_has_only_one_question(words: Tokenizer) -> None:
    shown = [sequences.with_one_question(action(5, 4), random.Random(seed)) for seed in range(60)]
    questions = [(one.label.question if one.label else None, one.ran) for one in shown]
    assert {(SIMPLE, True), (None, True), (WILL_RUN, None)} == set(questions)


def test_close_ups_are_orientations_after_their_observations(words: Tokenizer) -> None:
    traces = sequences.read([parse_trace(trace(ticks=3))[PINNED:]], words, 1, 1024)
    found = sequences.close_ups(traces, words, 256, random.Random(1))
    shown = sorted(words.decode(list(ids)) for ids, _ in found)
    assert len(shown) == 3
    assert shown[1].startswith("#startblock type: observation\n#title Board\n# 0 | 1 | 1\n#endblock\n\n#startblock")
    assert "I take cell 1." in shown[1]
    for ids, labels in found:
        assert ids[0] == words.token_to_id("<s>")
        assert words.decode([number for number in labels if number != IGNORED]).startswith("+cell take")
    assert sequences.close_ups(traces, words, 20, random.Random(1)) == []


def test_windows_teach_every_block_once_with_its_context(words: Tokenizer) -> None:
    chance = random.Random(3)
    traces = sequences.read([parse_trace(trace())[PINNED:] for _ in range(20)], words, 1, 1024)
    length = 3 * max(sum(len(piece.ids) for piece in traces[0][start : start + 5]) for start in range(0, 50, 5))
    found = list(sequences.windows(traces, words, length, chance))
    assert all(len(ids) == len(labels) == length for ids, labels in found)
    reminder = words.encode("#startblock type: task-reminder", add_special_tokens=False).ids
    for ids, labels in found:
        text = list(ids)
        first = next(at for at in range(len(text)) if text[at : at + len(reminder)] == reminder)
        assert ids[0] == words.token_to_id("<s>")
        assert (labels[:first] == IGNORED).all(), "Are blocks before the first whole tick not taught?"
    taught = sum(int((labels != IGNORED).sum()) for _, labels in found)
    there = sum(int((piece.labels != IGNORED).sum()) for one in traces for piece in one)
    assert 0.95 * there < taught < 1.1 * there


def test_packed_sequences_are_complete_and_follow_each_other() -> None:
    found = [(np.full(size, size, np.int32), np.full(size, -size, np.int32)) for size in (3, 4, 5, 2, 6, 1)]
    ids = [first.tolist() for first, _ in sequences.packed(found, 8)]
    assert ids == [[3] * 3 + [4] * 4, [5] * 5 + [2] * 2]
    taught = [labels.tolist() for _, labels in sequences.packed(found, 8)]
    assert taught == [[-number for number in row] for row in ids]
    assert list(sequences.packed(found, 2)) == []


def test_blocks_that_fill_half_a_window_are_left_out_and_a_window_keeps_its_end(words: Tokenizer) -> None:
    ticks = parse_trace(trace(ticks=1))[PINNED:]
    longest = max(len(piece.ids) for piece in sequences.pieces(ticks, words, random.Random(1)))
    [read] = sequences.read([ticks], words, 1, 2 * longest - 2)
    assert len(read) == len(ticks) - 1
    ids, labels = sequences.joined(read, words, 10)
    assert len(ids) == len(labels) == 10
    assert ids[0] == words.token_to_id("<s>")
    assert ids[1:].tolist() == np.concatenate([piece.ids for piece in read])[-9:].tolist()
