"""The policies for conversation, nano, sums, the zombie game and NetHack: what they see, and what they do."""

import ast
import json
import random
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bootstraps.tools.zombie_game import Game
from simulation import policies
from simulation.policies import conversation, generic, nano, nethack, sums, survivor
from simulation.policies.situation import Situation, read
from tests.support.policies import base
from weavegen.linting.lint import compiles
from weavegen.trace.blocks import BlockType

PREFIX = {BlockType.ACTION: "def action_", BlockType.EVALUATION: "def eval_", BlockType.OBSERVATION_INFERENCE: ""}
TYPES = (*PREFIX, BlockType.ORIENTATION, BlockType.EXPECTATION, BlockType.DEBUG, BlockType.BACKTRACK)
GREETED = (
    "Channel lobby, the newest messages last:\n[1] me: Hello!\n"
    "[2] Kim, answering 1: Grass: green\n\nMessages of the person: 1, of 8 that I answer at most. "
    "The person waits for my answer."
)
DIFFERENT = (
    "Places where the saved file differs from the text: 2. Similarity: 0.8.\n"
    "At line 3:\n- wrong\n- also wrong\n+ right\nAt line 9:\n+ last"
)
DUNGEON = """\
WeaveNethack: 80x24, the cursor is in row 3, column 3

 -----
 |.@.|
 -----
[Weaver the Tenderfoot         ] St:16 Dx:11 Co:13 In:13 Wi:14 Ch:8 Neutral
Dlvl:1 $:0 HP:14(14) Pw:3(3) AC:7 Xp:1
Last keys sent: none
Moves: h west, < up, > down"""
SUM = "58 + 67 = ?\nWrong answers so far: 0. Left after this sum: 2."


def bootstrap(name: str) -> str:
    return Path(f"bootstraps/{name}.py").read_text()


def situation(name: str, shown: str, type: BlockType = BlockType.ACTION) -> Situation:
    return read(base(type, shown, bootstrap=bootstrap(name)) + PREFIX.get(type, '"""'))


SHOWN = {
    "conversation": (conversation, GREETED),
    "nano_practice": (nano, DIFFERENT),
    "zombie_survival": (survivor, ""),
    "nethack": (nethack, DUNGEON),
    "sums": (sums, SUM),
}


def shown(name: str) -> str:
    return SHOWN[name][1] or json.dumps(Game(1).state())


@pytest.mark.parametrize("name", SHOWN)
class TestEveryPolicy:
    def test_it_knows_its_bootstrap_and_no_other_does(self, name: str) -> None:
        here = situation(name, shown(name))
        assert [module for module in policies._POLICIES if module.knows(here)] == [SHOWN[name][0], generic]

    def test_most_drafts_of_all_types_compile_and_are_repeated_alike(self, name: str) -> None:
        for type in TYPES:
            here = situation(name, shown(name), type)
            drafts = [policies.write(here, 1, number) for number in range(40)]
            assert drafts == [policies.write(here, 1, number) for number in range(40)]
            whole = [(PREFIX.get(type, '"""') + draft).partition("\n#q: ")[0] for draft in drafts]
            assert sum(map(compiles, whole)) >= 28, (type, whole)

    def test_what_it_calls_is_in_its_bootstrap(self, name: str) -> None:
        """Every function that an action of the policy calls by its bare name is defined there, or is Python's."""
        defined = {node.name for node in ast.walk(ast.parse(bootstrap(name))) if isinstance(node, ast.FunctionDef)}
        for number in range(40):
            text = "def action_" + policies.write(situation(name, shown(name)), 2, number).partition("\n#q: ")[0]
            if not compiles(text):
                continue
            calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            names = {call.id for call in calls if isinstance(call, ast.Name)} - {
                "retry_later",
                "helper",
                "callback",
            }
            names -= {"on_failure", "check_again"}
            assert names <= defined | {"len", "isinstance", "print"}, text


def action(module: ModuleType, here: Situation) -> str:
    """The likeliest action: the one that most of the candidates are about."""
    names = [module.write(here, 3, number).partition("(self)")[0] for number in range(40)]
    return str(Counter(names).most_common(1)[0][0])


def test_conversation() -> None:
    seen = conversation.observed(situation("conversation", GREETED))
    assert seen == conversation.Channel(newest=2, words="Grass: green", waits=True, left=8, goodbye=False)
    assert action(conversation, situation("conversation", GREETED)) == "reply_to_message_2"
    waiting = GREETED.replace("The person waits for my answer.", "I wait for the person.")
    assert action(conversation, situation("conversation", waiting)) == "wait_for_answer"
    for end in (GREETED + " The person has said goodbye.", GREETED.replace("person: 1,", "person: 9,")):
        assert action(conversation, situation("conversation", end)) == "take_leave"


def test_nano() -> None:
    seen = nano.observed(situation("nano_practice", DIFFERENT))
    assert seen == nano.Practice(line=3, old=2, new=("right",), modified=False)
    assert action(nano, situation("nano_practice", DIFFERENT)) == "mend_line_3"
    equal = "The saved file is equal to the text. Nothing is left to do but to return."
    assert action(nano, situation("nano_practice", equal)) == "return_the_similarity"


def test_sums() -> None:
    here = situation("sums", SUM, BlockType.ORIENTATION)
    assert "The tens: 5 + 6 + 1 = 12, I write 2 and carry 1. The sum is 125." in policies.write(here, 1, 1)
    assert action(sums, situation("sums", SUM)) == "answer_125"
    assert action(sums, situation("sums", "All sums are answered. Wrong answers: 0.")) == "return_the_result"


def test_a_wrong_sum_is_thought_little_of() -> None:
    def odds(number: int) -> float:
        body = f'def action_a(self):\n    assert answer({number}), "Is it?"\n\nself.add_action("A", action_a)'
        prompt = base(BlockType.ACTION, SUM, bootstrap=bootstrap("sums"))
        return sums.log_odds(read(f"{prompt}{body}\n#q: Is it good? "))

    assert odds(125) - odds(115) > 3


def test_the_survivor_wins_some_games_and_loses_others() -> None:
    results: Counter[str] = Counter()
    for seed in range(60):
        game = Game(seed)
        for _ in range(200):
            command, _ = survivor.plan(game.state())
            told = game.command(command)
            assert "There is no command" not in told
            if game.result != "playing":
                break
        results[game.result] += 1
    assert results["rescued"] >= 10
    assert results["dead"] >= 10
    assert results["playing"] == 0


def test_the_survivor_reports_the_end() -> None:
    state: dict[str, Any] = Game(1).state() | {"over": True, "result": "dead"}
    assert action(survivor, situation("zombie_survival", json.dumps(state))) == "return_the_result"


def test_nethack() -> None:
    dice = random.Random(1)
    seen = nethack.observed(situation("nethack", DUNGEON))
    assert seen is not None
    assert (seen.running, seen.depth, seen.stairs) == (True, 1, False)

    def pressed(old: str, new: str, goal: int = 4) -> list[str]:
        screen = nethack.observed(situation("nethack", DUNGEON.replace(old, new)))
        assert screen is not None
        return nethack.keys(screen, goal, dice)[0]

    assert pressed("|.@.|", "|.@>|") == ["_", ">", ".", ">"]
    assert pressed("-----", "You see a rock.--More--") == ["Enter"]
    assert pressed(" -----\n |", "Really attack? [yn] (n)\n |") == ["Escape"]
    assert pressed("80x24", "the program has ended; 80x24") == []
    assert pressed("", "", goal=1) == []
