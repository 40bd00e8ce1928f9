"""Structure, rewriting and the prefix check: the cases of tests/grammars, and generated texts."""

import ast
import sys
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weavegen.kernel.steps import Penalties
from weavegen.linting.lint import lint, syntax_error
from weavegen.linting.partial import viable_prefix
from weavegen.linting.structure import GRAMMARS, fit
from weavegen.trace.blocks import CALLBACK, PROSE, BlockType
from weavegen.trace.render import normalise_body

CASES = Path(__file__).parent.parent / "grammars"
VALID = sorted((CASES / "valid").rglob("*.py"))
INVALID = sorted((CASES / "invalid").rglob("*.py"))
TYPES = (*sorted(PROSE | CALLBACK), BlockType.OBSERVATION_INFERENCE, BlockType.BOOTSTRAP)
MEGABYTE = 1_000_000

GOOD_ACTION = 'def action_go(self):\n    assert go(), "Did it go?"\nself.add_action("Go", action_go)'

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def read(path: Path) -> tuple[BlockType, str]:
    """The text of a case, with its original newlines."""
    return BlockType(path.parent.name), path.read_bytes().decode()


def legal(type: BlockType, text: str) -> bool:
    """Whether rewriting would cut nothing."""
    return syntax_error(text) is None and (type not in GRAMMARS or fit(type, ast.parse(text).body)[1])


def test_there_are_enough_cases() -> None:
    assert len(VALID) + len(INVALID) >= 60
    assert {path.parent.name for path in VALID} == {type.value for type in TYPES if type is not BlockType.BOOTSTRAP}


@pytest.mark.parametrize("path", VALID, ids=name)
def test_a_legal_block_is_not_changed(path: Path) -> None:
    type, text = read(path)
    verdict = lint(type, text)
    assert verdict.compiles
    assert verdict.penalties == Penalties()
    assert verdict.rewritten == text.strip("\n")


@pytest.mark.parametrize("path", INVALID, ids=name)
def test_an_illegal_part_has_its_penalty_and_is_cut(path: Path) -> None:
    type, text = read(path)
    expected = tomllib.loads(path.with_suffix(".toml").read_text())
    verdict = lint(type, text)
    assert verdict.compiles == expected["compiles"]
    given = {name: getattr(verdict.penalties, name) for name in Penalties.__struct_fields__}
    assert {name: number for name, number in given.items() if number} == pytest.approx(expected["penalties"])
    left = text.strip("\n") if verdict.compiles else text
    assert verdict.rewritten == (left if expected.get("unchanged") else expected["rewritten"])
    if verdict.compiles:
        assert syntax_error(verdict.rewritten) is None
        assert lint(type, verdict.rewritten).rewritten == verdict.rewritten


@pytest.mark.parametrize("path", VALID, ids=name)
def test_every_beginning_of_a_legal_block_is_viable(path: Path) -> None:
    type, text = read(path)
    for variant in (text, text.replace("\n", "\r\n")):
        refused = [end for end in range(len(variant) + 1) if not viable_prefix(type, variant[:end])]
        assert not refused, repr(variant[: refused[0]][-60:])


FIELDS = ["f\"a {b!r:>10} {c['d']} e\"", 'f"""a\n{b}\n{c:%Y}"""', '(f"a {b}"\n     f"{c}")', 'rf"{{a}} {b:{c}}"']
IN_FIELDS = ['f"{a["b"]} {f"{c}"}"', 'f"{\na\n}"', 'f"{a["""b"""]}"']


@pytest.mark.parametrize("string", FIELDS + IN_FIELDS * (sys.version_info >= (3, 12)))
def test_every_beginning_of_an_f_string_is_viable(string: str) -> None:
    text = f'def action_go(self):\n    x = {string}\n    assert x, f"{{x}}?"\nself.add_action("Go", action_go)\n'
    assert legal(BlockType.ACTION, text)
    refused = [text[:end] for end in range(len(text) + 1) if not viable_prefix(BlockType.ACTION, text[:end])]
    assert not refused
    broken = text.replace("\n    assert", '\n    y = f"{x}\n    assert')
    assert not viable_prefix(BlockType.ACTION, broken[: broken.index("assert") + 1])


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (BlockType.ACTION, "def action_go(self)\n"),
        (BlockType.ACTION, "def action_go(self):\n    x = = "),
        (BlockType.ACTION, "def action_go(self):\n    x = 1 zz"),
        (BlockType.ACTION, "def action_go(self):\n    rows = [1, 2)"),
        (BlockType.ACTION, "def action_go(self):\nmo"),
        (BlockType.ACTION, "def action_go(self):\n    a = 'open\n  "),
        (BlockType.ACTION, "def action_go(self):\n    try:\n        go()\n    go"),
        (BlockType.ACTION, GOOD_ACTION + "\ndef "),
        (BlockType.ACTION, GOOD_ACTION + '\n"""and'),
        (BlockType.ACTION, "def action_go(self):\n    pass\nself.add_ev"),
        (BlockType.ACTION, "@cache\nclass"),
        (BlockType.ACTION, "x = "),
        (BlockType.EVALUATION, '"""'),
        (BlockType.ORIENTATION, 'f"""I'),
        (BlockType.ORIENTATION, '"""I"""\nx'),
        (BlockType.ORIENTATION, '"""I""".strip()\n'),
        (BlockType.ORIENTATION, "I th"),
        (BlockType.OBSERVATION_INFERENCE, "class V"),
        (BlockType.OBSERVATION_INFERENCE, "self.add_action('a', b)\n"),
        (BlockType.BOOTSTRAP, "x = 1 +* "),
    ],
)
def test_a_broken_beginning_is_refused_at_once(type: BlockType, text: str) -> None:
    assert not viable_prefix(type, text)


PIECES = [
    *('"""', "'''", '"', "'", "\\", "\n", "\r\n", "\r", "\f", "\t", " ", "#", "(", ")", "[", "{", "}", "f'{", "; "),
    *("#q: Is it? Yes. (9%)\n", "# endblock\n", "# startblock type: action\n", "\uff51\uff1a", "\x00", "\ud800"),
    *("def f(self):\n    pass\n", "self.add_action('a', f)\n", "self.add_evaluation('a?', f)", "x = 1", "if x:\n"),
    *("self.add_observation_view('a', f)\n", "    ", "@f\n", "class A: pass\n", "async ", "lambda: ", "\u0301", "é"),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=24).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TYPES), texts)
@example(BlockType.ACTION, "\\\n@f\ndef f(self): pass\nx=1")
@example(BlockType.ORIENTATION, "'a' \\\n'b'  # q: c\nx")
@example(BlockType.ORIENTATION, '\r"""a\r\nb"""\rx')
@example(BlockType.ACTION, "\\\r\n")
def test_any_text_is_handled_without_an_exception(type: BlockType, text: str) -> None:
    verdict = lint(type, text)
    assert verdict == lint(type, text)
    assert verdict.compiles == (syntax_error(text) is None)
    if verdict.compiles:
        assert syntax_error(verdict.rewritten) is None
        assert syntax_error(normalise_body(type, verdict.rewritten)) is None
        assert lint(type, verdict.rewritten).rewritten == verdict.rewritten
    assert viable_prefix(type, text) or not legal(type, text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_no_beginning_of_a_legal_text_is_refused(path: Path, data: st.DataObject) -> None:
    type, text = read(path)
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(texts) + text[at:]
    if legal(type, broken):
        assert all(viable_prefix(type, broken[:end]) for end in range(len(broken) + 1))


HUGE = {
    "brackets": "(" * MEGABYTE,
    "labels": "#q: Is it? Yes. (99%)\n" * (MEGABYTE // 22),
    "labels behind code": "def f(self):\n" + "    x=1 # q: a\n" * (MEGABYTE // 15) + "self.add_action('a', f)",
    "triple quotes": '"""' * (MEGABYTE // 3),
    "hashes": "#" * MEGABYTE,
    "hashes apart": "# " * (MEGABYTE // 2),
    "empty lines in a string": '"""' + "\n" * MEGABYTE + '"""',
    "spaces in a string": '"""' + " " * MEGABYTE + '"""',
    "continuations": "\\\n" * (MEGABYTE // 2),
    "a sum": "x = 1" + "+1" * (MEGABYTE // 2),
    "attributes": "a" + ".b" * (MEGABYTE // 2),
    "minuses": "-" * MEGABYTE + "1",
    "elifs": "if x: pass\n" + "elif x: pass\n" * (MEGABYTE // 13),
    "combining marks": "a" + "\u0315\u0300" * (MEGABYTE // 2),
    "fields": 'f"' + "{" * MEGABYTE,
    "a long block": "def f(self):\n" + "    x = 1\n" * 10_000 + "self.add_action('Go', f)",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_a_megabyte_neither_crashes_nor_hangs(text: str) -> None:
    began = time.process_time()
    for type in (BlockType.ACTION, BlockType.ORIENTATION):
        verdict = lint(type, text)
        if verdict.compiles:
            assert "# q:" not in verdict.rewritten
    viable_prefix(BlockType.ACTION, text)
    assert time.process_time() - began < 30
