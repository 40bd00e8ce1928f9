"""Penalties and rewriting, number by number (WEAVE section 6)."""

import pytest

from weavegen.blocks import BlockType
from weavegen.lint import lint, syntax_error

ACTION, EVALUATION, ORIENTATION = BlockType.ACTION, BlockType.EVALUATION, BlockType.ORIENTATION
GOOD_ACTION = """def action_go(self):
    assert True, "Is it so?"
self.add_action("Go", action_go)"""
GOOD_EVALUATION = """def eval_it(self):
    return True
self.add_evaluation("Is it so?", eval_it)"""


def action(*lines: str) -> str:
    body = "\n".join("    " + line for line in lines)
    return f'def action_go(self):\n{body}\nself.add_action("Go", action_go)'


@pytest.mark.parametrize(
    ("type", "text"), [(ACTION, GOOD_ACTION), (EVALUATION, GOOD_EVALUATION), (ORIENTATION, '"""I think."""')]
)
def test_a_good_block_has_no_penalty_and_is_not_changed(type: BlockType, text: str) -> None:
    verdict = lint(type, text + "\n")
    assert verdict.compiles
    assert verdict.penalties.total() == 0
    assert verdict.rewritten == text


def test_what_does_not_compile_costs_2() -> None:
    verdict = lint(ACTION, "def action_go(self:\n")
    assert not verdict.compiles
    assert verdict.error is not None
    assert verdict.penalties.syntax == verdict.penalties.total() == 2.0


@pytest.mark.parametrize(
    ("type", "text", "name", "penalty"),
    [
        (ORIENTATION, '"""a"""\nx = 1\ny = 2', "extra_elements", 0.04),
        (ORIENTATION, '"""a"""' + "\nx = 1" * 80, "extra_elements", 1.0),
        (ORIENTATION, 'x = """a"""', "not_a_string", 1.0),
        (ORIENTATION, '"""a\nimport os\nprint(os)\nself.add_action(x)"""', "code_in_prose", 0.06),
        (ORIENTATION, '"""[INST]"""', "code_in_prose", 0.02),
        (ACTION, GOOD_ACTION + "\nx = 1", "shape", 1.0),
        (ACTION, GOOD_ACTION + "\nx = 1", "extra_elements", 0.02),
        (ACTION, "def action_go(self):\n    pass", "shape", 1.0),
        (ACTION, GOOD_ACTION.replace(", action_go)", ", action_stop)"), "wrong_name", 2.0),
        (EVALUATION, GOOD_EVALUATION.replace("Is it so?", "It is so"), "title", 1.0),
        (EVALUATION, GOOD_EVALUATION.replace('"Is it so?"', "title"), "title", 2.0),
        (EVALUATION, GOOD_EVALUATION.replace("return True", "assert True; assert True"), "assertions", 0.6),
        (ACTION, action("pass"), "assertions", 0.5),
        (ACTION, action("assert True"), "assertions", 0.3),
        (ACTION, action("assert True, 'It is so'"), "assertions", 0.2),
        (ACTION, action("assert True, f'Is {1} so?'"), "assertions", 0.0),
        (ACTION, action("try:", "    assert True, 'Is it?'", "finally:", "    pass"), "assertions", 0.2),
        (ACTION, action(*["assert True, 'Is it?'"] * 5), "assertions", 0.4),
        (ACTION, action("self.task.add_evaluation('a?', f)"), "forbidden_calls", 2.0),
        (ACTION, action("subagent.task.add_evaluation('a?', f)"), "forbidden_calls", 1.0),
        (ACTION, action("self.add_evaluation('a?', f)"), "forbidden_calls", 0.5),
        (ACTION, action("subagent.add_evaluation('a?', f)"), "forbidden_calls", 0.3),
        (ACTION, action("self.add_observation_view('a', f)"), "forbidden_calls", 0.5),
        (ACTION, action("subagent.add_observation_view('a', f)"), "forbidden_calls", 0.3),
        (ACTION, action("print(1)", "print(2)"), "forbidden_calls", 0.6),
    ],
)
def test_each_penalty_has_its_number(type: BlockType, text: str, name: str, penalty: float) -> None:
    assert getattr(lint(type, text).penalties, name) == pytest.approx(penalty)


def test_length_counts_straight_after_a_debug_block() -> None:
    assert lint(ACTION, GOOD_ACTION, tokens=768).penalties.length_after_debug == 0
    assert lint(ACTION, GOOD_ACTION, tokens=768, after_debug=True).penalties.length_after_debug == pytest.approx(
        0.5
    )
    assert lint(ACTION, GOOD_ACTION, tokens=96, after_debug=True).penalties.length_after_debug == 0


@pytest.mark.parametrize(
    ("type", "text", "left"),
    [
        (ORIENTATION, '"""a"""\nprint(1)\n"""b"""', '"""a"""'),
        (ORIENTATION, 'x = 1\n"""a"""', '"""a"""'),
        (ACTION, "import os\n" + GOOD_ACTION + "\nprint(1)\n# q: Is this good? Yes. (99%)", GOOD_ACTION),
        (
            ACTION,
            GOOD_ACTION.replace("    assert", "    # q: Is it good? Yes. (100%)\n    assert"),
            GOOD_ACTION,
        ),
        (ACTION, GOOD_ACTION + '\nself.add_action("Again", action_go)', GOOD_ACTION),
        (EVALUATION, GOOD_EVALUATION + "\ndef eval_more(self):\n    return 1", GOOD_EVALUATION),
        (ACTION, "@cache\n" + GOOD_ACTION + "\nx = 1", "@cache\n" + GOOD_ACTION),
        (ACTION, 'async def action_go(self):\n    pass\nx = 2\nself.add_action("Go", action_go)', None),
        (BlockType.OBSERVATION_INFERENCE, "x = 1\n#q: Is it? Yes. (9%)\ny = 2", "x = 1\ny = 2"),
    ],
)
def test_rewriting_keeps_the_legal_structure_only(type: BlockType, text: str, left: str | None) -> None:
    expected = left or 'async def action_go(self):\n    pass\nself.add_action("Go", action_go)'
    assert lint(type, text).rewritten == expected


def test_a_string_that_looks_like_a_label_stays() -> None:
    text = 'def action_go(self):\n    x = """\n# q: Is it? Yes.\n"""\nself.add_action("Go", action_go)'
    assert lint(ACTION, text).rewritten == text


@pytest.mark.parametrize(
    "text",
    [
        "return 1",
        "from __future__ import annotations",
        "global x",
        "if True:\n    global x",
        "x = '\x00'",
        "(" * 500,
    ],
)
def test_what_may_not_stand_in_a_trace_does_not_compile(text: str) -> None:
    assert syntax_error(text) is not None


def test_a_global_inside_a_function_compiles() -> None:
    assert syntax_error("def f():\n    global x\n    x = 1") is None
