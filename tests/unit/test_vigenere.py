"""The Vigenère cipher and its bootstrap, and traces without linting."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstraps import vigenere_cipher
from bootstraps.vigenere_cipher import TEXTS, encrypt, letters, pose
from tests.support.world import Trace, World
from weavegen.box import api
from weavegen.kernel.replay import encode
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Lint, Penalties
from weavegen.linting.lint import verdict
from weavegen.trace.blocks import BlockType

SOURCE = (Path(__file__).parents[2] / "bootstraps" / "vigenere.py").read_text()


class Played:
    """The bootstrap, run as the environment runs it, and what a trace reads of it."""

    def __init__(self, **params: Any) -> None:
        tree = api.Tree("model", 60)
        mock = tree.subagent("bootstrap", None, "Set the task up", {}, 60)
        self.args = SimpleNamespace(params=dict(params), budget=60)
        self.names: dict[str, Any] = {"agent": tree, "self": mock, "args": self.args}
        exec(SOURCE, self.names)
        action = mock.current_tick.action
        assert action is not None
        action["callback"](mock)
        self.main = self.names["self"] = tree.agents["main"]

    def __getattr__(self, name: str) -> Any:
        return self.names[name]

    @property
    def view(self) -> str:
        return str(self.main.observation_views[0]["callback"](self.main))

    def act(self, body: str) -> None:
        """Run an action block. Exceptions pass through."""
        exec(body, self.names)
        assert self.main.current_tick.action is not None
        self.main.current_tick.action["callback"](self.main)


# ------------------------------------------------------------------------------------- the bootstrap


def test_encrypting() -> None:
    assert encrypt("attack at dawn!", "LEMON") == "LXFOPVEFRNHR"


@pytest.mark.parametrize("text", TEXTS)
def test_default_texts_are_long_enough_and_not_in_the_bootstrap(text: str) -> None:
    assert len(letters(text)) >= vigenere_cipher.LEAST_LETTERS
    known = letters(SOURCE)
    assert not any(letters(text)[start : start + 20] in known for start in range(0, len(letters(text)) - 20, 10))


def test_a_task_takes_text_and_key_from_the_parameters() -> None:
    params = {"text": TEXTS[0], "key": "Lemon", "other": 1}
    ciphertext, is_plaintext = pose(params)
    assert params == {"other": 1}
    assert ciphertext == encrypt(TEXTS[0], "LEMON")
    assert is_plaintext(TEXTS[0])
    assert is_plaintext(letters(TEXTS[0]).lower())
    assert not is_plaintext(TEXTS[0] + "x")
    assert not is_plaintext("")


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"key": "K3Y"}, "'K3Y': give 2 to 8 letters from A to Z"),
        ({"key": "ÄPFEL"}, "give 2 to 8 letters"),
        ({"key": ""}, "give 2 to 8 letters"),
        ({"key": "FARTOOLONG"}, "give 2 to 8 letters"),
        ({"key": 7}, "give 2 to 8 letters"),
        ({"text": "Too short. " * 20}, "300 letters or more"),
        ({"text": 5}, "300 letters or more"),
    ],
)
def test_bad_parameters(params: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        pose(params)


def test_the_bootstrap_asks_for_the_plaintext_and_recognises_it() -> None:
    played = Played(text=TEXTS[1], key="river")
    assert played.args.params == {}
    assert f"{len(letters(TEXTS[1]))} letters:" in played.view
    assert played.view.endswith("Key length: not known yet\nKey: not known yet\nBegins: not known yet")
    assert played.eval_nothing_guessed_yet(played.main)
    played.set_key(played.main, "RI?ER")
    assert played.view.endswith("Key length: 5\nKey: RI?ER\nBegins: " + played.decrypt("RI?ER")[:60])
    assert played.decrypt("RI?ER").startswith("BR.ADAS.SF")
    assert not played.is_found(played.main)
    with pytest.raises(ValueError, match="use the letters A to Z"):
        played.set_key(played.main, "river")
    played.set_key(played.main, "RIVER")
    played.main.return_to_caller({"plaintext": played.decrypt("RIVER")})
    assert played.main.returned == {"plaintext": letters(TEXTS[1]), "is_found": True}


# ----------------------------------------------------------------------------------------- no linting


def test_without_linting_a_candidate_only_has_to_compile() -> None:
    lame = "def action_a(self):\n    print(1)\nx = 2\n# q : Good? Yes. (99.8%)"
    step = Lint(type=BlockType.ACTION, sample=0, after_debug=True, linting=False)
    result = verdict(step, f"\n{lame}\n", 700)
    assert (result.compiles, result.rewritten, result.penalties) == (True, lame, Penalties())
    broken = verdict(step, "def action_a(self)", 700)
    assert (broken.compiles, broken.rewritten, broken.penalties) == (False, "def action_a(self)", Penalties())
    assert broken.error is not None
    observed = verdict(Lint(type=BlockType.OBSERVATION, sample=0, linting=False), "# It is open,\nas I see", 9)
    assert observed.compiles, "an observation does not have to compile"
    linted = verdict(Lint(type=BlockType.ACTION, sample=0, after_debug=True), lame, 700)
    assert linted.rewritten != lame
    assert linted.penalties.total() > 0
    assert linted.penalties.length_after_debug > 0


def test_the_journal_of_linted_traces_does_not_contain_the_setting() -> None:
    assert b"linting" not in encode(Lint(type=BlockType.ACTION, sample=0))
    assert b'"linting":false' in encode(Lint(type=BlockType.ACTION, sample=0, linting=False))


@pytest.mark.parametrize("linting", [True, False])
def test_the_setting_reaches_the_blocks(linting: bool) -> None:
    bodies = [
        block.body
        for seed in range(20)
        for block in Trace(World(seed), settings=Settings(linting=linting)).run().blocks
    ]
    assert any("# q: fake" in body for body in bodies) is not linting
