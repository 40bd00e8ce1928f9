"""The scripted policies: deterministic, flawed at the documented rates, and able to win."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simulation import complete, policies, tokenizer
from simulation.load import Engine, Load
from simulation.policies import board, judge, tictactoe
from simulation.policies.draft import CALLBACK_FLAWS, EVALUATION_FLAWS, PROSE_FLAWS
from simulation.policies.situation import read
from tests.support.policies import (
    BOOTSTRAP,
    OPEN,
    TO_WIN,
    WON,
    WRITTEN,
    base,
    block,
    drafts,
    is_fine,
    odds,
)
from weavegen.kernel import context, prompts
from weavegen.linting.lint import lint
from weavegen.nano.protocol import BadRequest, CompletionRequest
from weavegen.trace import query
from weavegen.trace.blocks import PROSE, BlockType
from weavegen.trace.render import render_block


@pytest.mark.parametrize("bootstrap", [BOOTSTRAP, "# another task\n"])
@pytest.mark.parametrize("type", WRITTEN)
def test_the_same_seed_gives_the_same_texts_at_another_time(type: BlockType, bootstrap: str) -> None:
    first = drafts(type, OPEN, 8, bootstrap=bootstrap)
    assert first == drafts(type, OPEN, 8, bootstrap=bootstrap, index=77, began=123456.75)
    if type is not BlockType.OBSERVATION_INFERENCE:
        assert first != drafts(type, OPEN, 8, seed=2, bootstrap=bootstrap)
        assert len(set(first)) > 2


@pytest.mark.parametrize("type", [BlockType.ACTION, BlockType.ORIENTATION])
def test_scores_do_not_depend_on_the_time_either(type: BlockType) -> None:
    (body,) = drafts(type, OPEN, 1)
    assert odds(type, OPEN, body) == odds(type, OPEN, body, index=77, began=123456.75)


@pytest.mark.parametrize("shown", [OPEN, WON, "a desk and a lamp"])
@pytest.mark.parametrize("type", WRITTEN)
def test_most_candidates_have_the_shape_of_their_block(type: BlockType, shown: str) -> None:
    bodies = drafts(type, shown, 60)
    for body in bodies:
        assert not any(stop in body for stop in context.STOP)
    fine = [body for body in bodies if is_fine(type, body)]
    assert len(fine) > 20
    for body in fine:
        tree = ast.parse(body)
        if type in PROSE:
            assert isinstance(tree.body[0], ast.Expr)
            assert len(tree.body) == 1
        elif type is not BlockType.OBSERVATION_INFERENCE:
            assert isinstance(tree.body[0], ast.FunctionDef)
            assert len(tree.body) == 2


@pytest.mark.parametrize(
    ("type", "rates"),
    [
        (BlockType.ACTION, CALLBACK_FLAWS),
        (BlockType.EVALUATION, EVALUATION_FLAWS),
        (BlockType.EXPECTATION, PROSE_FLAWS),
    ],
)
def test_flaws_come_at_the_documented_rates(type: BlockType, rates: dict[str, float]) -> None:
    bodies = drafts(type, WON, 1000)
    lame = sum(not is_fine(type, body) for body in bodies) / len(bodies)
    # A candidate whose flaw only shows when it runs, and is overlooked, still counts as fine here.
    unseen = rates.get("invented_method", 0.0) * judge.OVERLOOKED
    assert lame == pytest.approx(sum(rates.values()) - unseen, abs=0.05)
    broken = sum(not lint(type, body).compiles for body in bodies) / len(bodies)
    assert broken == pytest.approx(rates.get("syntax", rates.get("unclosed", 0)), abs=0.03)


def test_good_actions_score_high_and_flawed_ones_low() -> None:
    best, worse = [], []
    for body in drafts(BlockType.ACTION, TO_WIN, 300):
        score = odds(BlockType.ACTION, TO_WIN, body)
        if not is_fine(BlockType.ACTION, body):
            worse.append(score)
        elif "cell = 2\n" in body and "self.get_" not in body:
            best.append(score)
    assert min(best) >= 2
    assert max(best) <= 4
    assert max(worse) < 0


def test_a_first_round_of_four_often_suffices_and_not_always() -> None:
    accepted = 0
    for seed in range(200):
        bodies = drafts(BlockType.ACTION, OPEN, 4, seed)
        verdicts = [lint(BlockType.ACTION, body) for body in bodies]
        accepted += any(
            verdict.compiles and odds(BlockType.ACTION, OPEN, body) - verdict.penalties.total() >= 1
            for body, verdict in zip(bodies, verdicts, strict=True)
        )
    assert 150 <= accepted <= 198


def test_moves() -> None:
    cells = Counter(tictactoe._cell(body) for body in drafts(BlockType.ACTION, TO_WIN, 400))
    assert cells[2] > 260
    assert sum(cells[taken] for taken in (0, 1, 3, 4)) == pytest.approx(400 * 0.06, abs=16)
    assert sum(cells[free] for free in (5, 6, 7, 8)) == pytest.approx(400 * 0.15 * 4 / 5, abs=25)


def test_a_finished_game_is_reported() -> None:
    fine = [body for body in drafts(BlockType.ACTION, WON, 40) if is_fine(BlockType.ACTION, body)]
    assert all('self.return_to_caller({"result": results[0]})' in body for body in fine)
    assert "self.completed" in drafts(BlockType.EVALUATION, WON, 40)[0]


def test_a_second_attempt_asks_which_cells_are_free() -> None:
    failed = block(BlockType.ERROR, "Traceback\nValueError: cell 4 can't be taken", 4)
    prompt = base(BlockType.ACTION, OPEN)
    header = prompt.rindex("#subagent main\n")
    situation = read(prompt[:header] + render_block(failed) + prompt[header:] + "def action_")
    bodies = [policies.write(situation, 1, number) for number in range(20)]
    assert sum('if wish in before["free"]' in body for body in bodies) > 10


def test_the_evaluation_looks_at_the_cell_that_was_taken() -> None:
    taken = block(BlockType.ACTION, "def action_take(self):\n    cell = 7\n    move(cell)", 4)
    prompt = base(BlockType.EVALUATION, OPEN)
    header = prompt.rindex("#subagent main\n")
    situation = read(prompt[:header] + render_block(taken) + prompt[header:] + "def eval_")
    assert 'game["board"][7]' in "".join(policies.write(situation, 1, number) for number in range(5))


def test_a_stem_is_carried_on() -> None:
    situation = read(base(BlockType.DEBUG, OPEN) + '"""The line that failed was')
    text = policies.write(situation, 1, 0)
    assert text.startswith(" ")
    assert not text.startswith('"""')


@pytest.mark.parametrize("shown", [OPEN, "a lamp"])
def test_queries_for_retrieval_parse_more_often_than_not(shown: str) -> None:
    situation = read(base(BlockType.ACTION, shown) + "#bm25_query ")
    lines = [complete.cut(policies.write(situation, 1, n), context.LINE_STOP, 99)[0] for n in range(80)]
    parsed = [found for line in lines if (found := query.parse(line)) is not None]
    assert 55 <= len(parsed) < 80
    assert all(len(found.words) >= 8 and found.unwanted for found in parsed)


def test_the_option_question_is_mostly_answered_no() -> None:
    prompt = base(BlockType.OPTION, OPEN) + context.question_suffix("", prompts.option_question())
    assert policies.answer(read(prompt)) == pytest.approx(0.05)


def test_a_question_of_a_bootstraps_own_is_answered() -> None:
    request = CompletionRequest("Is this text a story? Answer yes or no:", max_tokens=1, logprobs=20)
    response, _ = complete.complete(request, Engine(Load()))
    assert response.choices[0].logprobs is not None
    assert {" Yes", "Yes", "No"} <= set(response.choices[0].logprobs.top_logprobs[0])


def test_values_of_moves() -> None:
    assert board.ranked("XX OO    ", "X")[0] == (1.0, 2)
    assert board.ranked("OO XX    ", "O")[0] == (1.0, 2)
    assert board.value("OO  X    ", 8, "X") == -1.0
    assert board.value(" " * 9, 0, "X") > 0.8


@pytest.mark.parametrize(
    ("text", "stop", "most", "expected"),
    [
        ("one two#endblock", ("#endblock",), 50, ("one two", "stop", "#endblock")),
        ("one\n#q: two#endblock", ("#endblock", "\n#q: "), 50, ("one", "stop", "\n#q: ")),
        ("one two", ("#endblock",), 50, ("one two", "stop", None)),
        ("one two three", (), 2, ("one two", "length", None)),
        ("one two", "two", 50, ("one ", "stop", "two")),
    ],
)
def test_stop_strings(text: str, stop: Any, most: int, expected: tuple[str, str, str | None]) -> None:
    cut, _, finish, reason = complete.cut(text, stop, most)
    assert (cut, finish, reason) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": ""},
        {"model": "llama"},
        {"n": 0},
        {"max_tokens": 0},
        {"logprobs": 21},
        {"logprob_token_ids": [5]},
        {"logprobs": 1, "logprob_token_ids": [10**9]},
        {"logprobs": 1, "logprob_token_ids": list(range(129))},
        {"prompt": [10**9]},
    ],
)
def test_requests_that_vllm_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        complete.complete(CompletionRequest(**({"prompt": "x"} | wrong)), Engine(Load()))


def test_prompts_may_be_token_ids() -> None:
    ids = tokenizer.encode("def action_")
    one, _ = complete.complete(CompletionRequest(list(ids), seed=1), Engine(Load()))
    two, _ = complete.complete(CompletionRequest([list(ids), list(ids)], seed=1, n=2), Engine(Load()))
    text, _ = complete.complete(CompletionRequest("def action_", seed=1), Engine(Load()))
    assert one.choices[0].text == text.choices[0].text == two.choices[2].text
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3]


def test_the_policy_reads_what_the_bootstrap_shows() -> None:
    source = Path(__file__).parents[2] / "bootstraps" / "tictactoe.py"
    assert BOOTSTRAP.strip() in source.read_text()
    state = {"board": list("XO  X    "), "you": "X", "opponent": "basic", "over": False, "result": None}
    functions: dict[str, Any] = {"get_state": lambda: json.loads(json.dumps(state))}
    view = next(
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "view_board"
    )
    exec(compile(ast.Module([view], []), "bootstrap", "exec"), functions)
    for over, result in ((False, None), (True, "won")):
        state |= {"over": over, "result": result}
        situation = read(base(BlockType.ACTION, functions["view_board"](None)) + "def action_")
        assert tictactoe.observed(situation) == tictactoe.Game("XO  X    ", "X", over)
