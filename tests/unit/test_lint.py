"""What linting keeps of a block, and what must not be in a trace. Penalties are tested in tests/weave."""

import pytest

from weavegen.linting.lint import lint, syntax_error
from weavegen.trace.blocks import BlockType

ACTION, EVALUATION, ORIENTATION = BlockType.ACTION, BlockType.EVALUATION, BlockType.ORIENTATION
GOOD_ACTION = """def action_go(self):
    assert True, "Is it so?"
self.add_action("Go", action_go)"""
GOOD_EVALUATION = """def eval_it(self):
    return True
self.add_evaluation("Is it so?", eval_it)"""


@pytest.mark.parametrize(
    ("type", "text"), [(ACTION, GOOD_ACTION), (EVALUATION, GOOD_EVALUATION), (ORIENTATION, '"""I think."""')]
)
def test_a_good_block_has_no_penalty_and_is_not_changed(type: BlockType, text: str) -> None:
    verdict = lint(type, text + "\n")
    assert verdict.compiles
    assert verdict.penalties.total() == 0
    assert verdict.rewritten == text


@pytest.mark.parametrize(
    ("type", "text", "left"),
    [
        (ORIENTATION, '"""a"""\nprint(1)\n"""b"""', '"""a"""'),
        (ORIENTATION, 'x = 1\n"""a"""', '"""a"""'),
        (ACTION, "import os\n" + GOOD_ACTION + "\nprint(1)\n# q: Is this good? Yes. (99%)", GOOD_ACTION),
        (ACTION, GOOD_ACTION.replace("    assert", "    # q: Is it good? Yes. (100%)\n    assert"), GOOD_ACTION),
        (ACTION, GOOD_ACTION + '\nself.add_action("Again", action_go)', GOOD_ACTION),
        (EVALUATION, GOOD_EVALUATION + "\ndef eval_more(self):\n    return 1", GOOD_EVALUATION),
        (ACTION, "@cache\n" + GOOD_ACTION + "\nx = 1", "@cache\n" + GOOD_ACTION),
        (ACTION, "@\\\ncache\n" + GOOD_ACTION + "\nx = 1", "@\\\ncache\n" + GOOD_ACTION),
        (ACTION, "@(  # why\n\n  cache\n)\n" + GOOD_ACTION + "\nx", "@(  # why\n\n  cache\n)\n" + GOOD_ACTION),
        (ACTION, "x\n@(a\n@ b)\n@cache\n" + GOOD_ACTION, "@(a\n@ b)\n@cache\n" + GOOD_ACTION),
        (ACTION, 'async def action_go(self):\n    pass\nx = 2\nself.add_action("Go", action_go)', None),
        (BlockType.OBSERVATION_INFERENCE, "x = 1\n#q: Is it? Yes. (9%)\ny = 2", "x = 1\ny = 2"),
    ],
)
def test_rewriting_keeps_only_the_legal_structure(type: BlockType, text: str, left: str | None) -> None:
    expected = left or 'async def action_go(self):\n    pass\nself.add_action("Go", action_go)'
    assert lint(type, text).rewritten == expected


def test_a_string_that_looks_like_a_label_stays() -> None:
    text = 'def action_go(self):\n    x = """\n# q: Is it? Yes.\n"""\nself.add_action("Go", action_go)'
    assert lint(ACTION, text).rewritten == text


@pytest.mark.parametrize(
    "text",
    ["return 1", "from __future__ import annotations", "global x", "if True:\n    global x", "x = '\x00'", "(" * 500],
)
def test_text_that_would_break_the_trace_does_not_compile(text: str) -> None:
    assert syntax_error(text) is not None


def test_a_global_inside_a_function_compiles() -> None:
    assert syntax_error("def f():\n    global x\n    x = 1") is None
