"""The simulation's policies: their texts are reproducible, and mostly legal."""

import ast
import builtins
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bootstraps.tools.zombie_game import Game
from bootstraps.vigenere_cipher import TEXTS, encrypt
from simulation import complete, policies
from simulation.policies import dialogue, tictactoe
from simulation.policies.dialogue import Conversation
from simulation.policies.situation import read
from tests.support import ROOT
from tests.support.policies import BOOTSTRAP, OPEN, PREFIX, TO_WIN, WON, WRITTEN, base, drafts, is_fine, odds, view
from weavegen.agents.dialogue import task_of
from weavegen.agents.funsearch import Task, code_blocks, prompt_of
from weavegen.agents.islands import Program
from weavegen.kernel import context, prompts
from weavegen.trace import query
from weavegen.trace.blocks import PROSE, BlockType


def bootstrap(name: str) -> str:
    return (ROOT / "bootstraps" / f"{name}.py").read_text()


ENDS = (WON, view("XOXXOOOXX", "The game is over: drawn."))
PAGE = 'Page 1 of 2 of "A Walk":\n\nThe path to the mill has forty steps of grey stone.'
VIEWS = {
    "tictactoe": OPEN,
    "tictactoe_tournament": f"Game 1 of 2, against random. I play X. It is my turn.\n{OPEN}",
    "conversation": (
        "Channel lobby, the newest messages last, with their times in UTC:\n"
        "[1, 2026-01-02 09:59] me: Hello!\n[2, 2026-01-02 10:00] Kim, answering 1: Grass: green\n\n"
        "Messages of the person: 1, of 8 that I answer at most. The person waits for my answer."
    ),
    "nano_practice": (
        "Places where the saved file differs from the text: 2. Similarity: 0.8.\n"
        "At line 3:\n- wrong\n- also wrong\n+ right\nAt line 9:\n+ last"
    ),
    "zombie_survival": json.dumps(Game(1).state()),
    "nethack": (
        "WeaveNethack: 80x24, the cursor is in row 3, column 3\n\n -----\n |.@.|\n -----\n"
        "[Weaver the Tenderfoot         ] St:16 Dx:11 Co:13 In:13 Wi:14 Ch:8 Neutral\n"
        "Dlvl:1 $:0 HP:14(14) Pw:3(3) AC:7 Xp:1\nLast keys sent: none\nMoves: h west, < up, > down"
    ),
    "sums": "58 + 67 = ?\nWrong answers so far: 0. Left after this sum: 2.",
    "vigenere": f"{len(TEXTS[0])} letters: {encrypt(TEXTS[0], 'MOSS')}\nKey length: not known yet",
    "haunted_mansion": "Words: 93 of 200\nRooms: 1 of 2 (hall)\nNot entered yet: cellar\nEnded: no",
    "mars_colony": (
        "Entry 2 of 3 is due: the old water pump fails at night. It should have the word 'pump'.\n"
        "Stores: water 93, oxygen 88, food 91\nChange: water -16, oxygen -5, food +17"
    ),
    "book_report": f"{PAGE}\n\nPages read: 1 of 2\nOwn words: 9 of 50\nPages quoted: none (0 of 2)",
    "another task": "a desk and a lamp",
}
"""A view of each bootstrap that has a policy of its own, and of one that has none."""


def grown(type: BlockType, bootstrap: str, seed: int, tokens: int) -> tuple[str, int]:
    """A block written in pieces, and the number of pieces."""
    stems = prompts.stems(type)
    body = PREFIX.get(type, '"""') + (stems[seed % len(stems)] if stems else "")
    prompt = base(type, OPEN, bootstrap=bootstrap)
    for number in range(1, 60):
        text, _, reason, _ = complete.cut(policies.write(read(prompt + body), seed, number), context.STOP, tokens)
        if reason == "stop":
            return body + text, number
        body += context.without_begun_stop(text, context.STOP)
    pytest.fail(f"the block does not end: {body}")


def source(name: str) -> str:
    return "# another task\n" if name == "another task" else bootstrap(name)


@pytest.mark.parametrize("name", VIEWS)
def test_a_policy_recognises_its_bootstrap(name: str) -> None:
    situation = read(base(BlockType.ACTION, VIEWS[name], bootstrap=source(name)) + "def action_")
    known = [policy for policy in policies._POLICIES if policy.knows(situation)]
    assert len(known) == (1 if name == "another task" else 2), "its own policy, and the policy for everything"


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("type", WRITTEN)
def test_many_candidates_are_legal_and_equal_seeds_give_equal_candidates(name: str, type: BlockType) -> None:
    bodies = drafts(type, VIEWS[name], 60, bootstrap=source(name))
    assert bodies == drafts(type, VIEWS[name], 60, bootstrap=source(name), index=77, began=123456.75)
    assert not any(stop in body for body in bodies for stop in context.STOP)
    fine = [body for body in bodies if is_fine(type, body)]
    assert len(fine) > (20 if name in ("tictactoe", "vigenere") else 12)
    for body in fine:
        statements = ast.parse(body).body
        if type in PROSE:
            assert isinstance(statements[0], ast.Expr)
            assert len(statements) == 1
        elif type is not BlockType.OBSERVATION_INFERENCE:
            assert isinstance(statements[0], ast.FunctionDef)
            assert len(statements) == 2


def test_a_message_that_arrived_between_two_views_is_waited_for_and_not_answered() -> None:
    shown = VIEWS["conversation"].replace("\n[2, 2026-01-02 10:00] Kim, answering 1: Grass: green", "")
    bodies = drafts(BlockType.ACTION, shown, 20, bootstrap=source("conversation"))
    assert any("wait_for_answer(1, " in body for body in bodies)
    assert not any("reply_to_message" in body for body in bodies)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *(("tictactoe", end) for end in ENDS),
        *(("tictactoe_tournament", f"Game {n} of 2, against random.\n{end}") for n in (1, 2) for end in ENDS),
    ],
)
@pytest.mark.parametrize("type", WRITTEN)
def test_blocks_after_a_game_are_legal(name: str, shown: str, type: BlockType) -> None:
    assert sum(is_fine(type, body) for body in drafts(type, shown, 20, bootstrap=source(name))) >= 10


@pytest.mark.parametrize("name", VIEWS)
def test_actions_call_only_what_the_bootstrap_defines(name: str) -> None:
    tree = ast.parse(source(name))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    defined |= {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    defined |= set(dir(builtins)) | {"callback", "check_again", "helper", "on_failure", "retry_later"}
    for body in drafts(BlockType.ACTION, VIEWS[name], 40, seed=2, bootstrap=source(name)):
        if is_fine(BlockType.ACTION, body):
            calls = [node.func for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Call)]
            assert {call.id for call in calls if isinstance(call, ast.Name)} <= defined, body


@pytest.mark.parametrize("name", ["tictactoe", "another task"])
@pytest.mark.parametrize("type", WRITTEN)
def test_most_blocks_written_in_pieces_are_legal(name: str, type: BlockType) -> None:
    blocks = [grown(type, source(name), seed, 16) for seed in range(30)]
    assert max(pieces for _, pieces in blocks) > 3
    assert sum(is_fine(type, body) for body, _ in blocks) >= 10
    assert blocks == [grown(type, source(name), seed, 16) for seed in range(30)]


@pytest.mark.parametrize("shown", [OPEN, "a lamp"])
def test_most_retrieval_queries_parse(shown: str) -> None:
    situation = read(base(BlockType.ACTION, shown) + "#bm25_query ")
    lines = [complete.cut(policies.write(situation, 1, n), context.LINE_STOP, 99)[0] for n in range(80)]
    parsed = [parsed_query for line in lines if (parsed_query := query.parse(line)) is not None]
    assert 55 <= len(parsed) < 80
    assert all(len(parsed_query.words) >= 8 and parsed_query.unwanted for parsed_query in parsed)


def test_the_option_question_is_mostly_answered_no() -> None:
    prompt = base(BlockType.OPTION, OPEN) + context.question_suffix("", prompts.option_question())
    assert policies.answer(read(prompt)) == pytest.approx(0.05)


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


def test_the_policy_reads_observations() -> None:
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


# funsearch

TASKS = [
    task
    for name in ("bin_packing", "cap_set")
    if (task := task_of((ROOT / "bootstraps" / "tasks" / f"{name}.json").read_text(), Task))
]


def conversation(task: Task) -> Conversation:
    return Conversation([("user", prompt_of(task, [Program(0, 0, 1.0, (1.0,), task.skeleton)]))])


def written(task: Task, count: int) -> list[str]:
    return [dialogue.write(conversation(task), seed=1, number=number) for number in range(count)]


@pytest.mark.parametrize("task", TASKS)
def test_most_versions_are_new_functions_and_some_are_broken(task: Task) -> None:
    sources, broken = set(), 0
    for text in written(task, 200):
        try:
            [source] = code_blocks(text.removesuffix("<|im_end|>"))
            [function] = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            assert function.name == task.name
            sources.add(source)
        except (SyntaxError, ValueError):
            broken += 1
    assert len(sources) > 100
    assert 5 <= broken <= 40


def test_equal_seeds_give_equal_texts() -> None:
    assert written(TASKS[0], 20) == written(TASKS[0], 20)
    assert len(set(written(TASKS[0], 20))) > 10


@pytest.mark.parametrize("piece", ["test", "evaluator", "first version"])
def test_it_writes_the_requested_piece(piece: str) -> None:
    task = (
        "A search will look for the best version of a Python function. You prepare it. The function is called "
        "total.\n\n```python\ndef total(numbers: list[int], start: int = 0) -> int:\n    ...\n```\n"
        f"Now write the {piece}."
    )
    defined = {"test": "test", "evaluator": "evaluate", "first version": "total"}[piece]
    texts = [dialogue.write(Conversation([("user", task)]), seed=1, number=number) for number in range(40)]
    right = [text for text in texts if re.search(rf"^def {defined}\(.*\)(?: -> int)?:$", text, re.MULTILINE)]
    assert 20 <= len(right) < 40
