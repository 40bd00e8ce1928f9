"""Texts that are hard to parse: of any size, one construct repeated, and nested to any depth."""

from collections.abc import Callable, Iterator

OVER_AND_OVER = {
    "brackets": ("(", "[", "{", "f(", "x[", "{1:", "[x for x in ", "C(a=", "(yield ", "match x:\n case ["),
    "operators": ("-", "~", "not ", "*", "**", "a+", "a**", "a and ", "a<", "a if b else ", "lambda:", "await "),
    "names and calls": ("a.", "a,", "a=", "(a:=", "print(1)\n", "self.", "x;", "self.add_action('a',f)\n"),
    "numbers": ("1", "9", "0x", "0xF", "1_", "1e", "9**9", "9**9**9\n", "1<<"),
    "quotes": ("'", '"', "'''", '"""', "''", "'a", '"a', '"a"', "'a' ", "\"'", "b'", "f'{", "f'''{", "f'{{"),
    "backslashes": ("\\", "\\\n", "'\\x", "\\N{", '\\"', "r'\\"),
    "line ends and blanks": ("\n", "\r", "\r\n", "\f", "\v", "\t", " ", "\u2028", "\x85", " \n", "\n "),
    "comments": ("#", "# ", "#\n", "#q: Is it? Yes. (9%)\n", "# q", "#endblock\n", "#index 1 ", "yes(9%)"),
    "decorators": ("@x\n", "@x(\n", "@"),
    "statements": ("if x:\n ", "elif x:\n pass\n", "try:\n pass\n", "import a\n", "with a,", "assert x,'?'\n"),
    "definitions": ("def f(self):pass\n", "async def f(): ", "class A:\n ", "del (", "from a import "),
    "characters": ("\x00", "\ud800", "\udcff", "\ufeff", "\u0301", "\u0315\u0300", "\ufb00", "\U0001f600"),
    "headers": ("#startblock type: action\n", "#subagent main\n", "#title x", "#q: a", "#tags: "),
    "queries": ("type:", "type: ", "+a ", "-a ", "a, ", "_", "+", "a'", "/", "type:'action' "),
    "JSON": ('{"a":', '{"bootstrap":"b.py"}\n', "null\n", '"\\u0000"', "1e999,", "-", "true,"),
    "sizes": ("0", "k", ".", "1.", " 1"),
}  # fmt: skip
"""Kind: the text that is repeated until the input is long enough."""


def collisions(size: int) -> str:
    """Integers with equal hashes."""
    return "x = (" + ", ".join(hex(i * (2**61 - 1)) for i in range(1, size // 24)) + ")"


def staircase(size: int) -> str:
    """Each line is indented deeper than the previous one."""
    return "".join(" " * depth + "if x:\n" for depth in range(int((2 * size) ** 0.5)))


def within(before: str, part: str, after: str) -> Callable[[int], str]:
    return lambda size: before + part * (size // len(part)) + after


LONG: dict[str, Callable[[int], str]] = {
    "equal hashes": collisions,
    "equal hashes in a set": lambda size: "y in {" + collisions(size)[5:-1] + "}",
    "equal functions": within("", "def f(self):\n  pass\n", "self.add_action('a',f)"),
    "a staircase": staircase,
    "fields of a string": within('f"""', "{x}", '"""'),
    "a division": lambda size: f"x = 0x{'F' * (size // 2)} // 0x{'F' * (size // 3)}",
    "signs before a number": lambda size: "x = " + "~" * 900 + "0x" + "F" * size,
    "strings grown by repeating": within("x = (", '"a"*4096,', ")"),
    "a long string grown": lambda size: f'x = "{"a" * size}"' + '+"b"' * 900,
    "a string of prose": within('"""', "for it is ", '"""'),
    "a string of lines": within('"""', "if a:\n", '"""'),
    "a string of nothing": within('"""', "\n", '"""'),
    "an unclosed string": within('"""', "a ", ""),
    "an unclosed phrase": within('"', "a", ""),
    "an unclosed phrase of signs": within("'", "- ", ""),
    "blanks behind a type": within("type:", " ", ""),
    "fakes behind code": within("def f(self):\n", "    x=1 # q: a\n", "self.add_action('a',f)"),
    "assertions": within("def f(self):\n", '    assert x,"?"\n', "self.add_action('a',f)"),
    "registrations": within("def f(self):\n  pass\n", "self.add_action('a',f)\n", ""),
    "keys": within("{", "1:1,", "}"),
    "parameters": lambda size: "def f(" + ",".join(f"a{i}" for i in range(size // 8)) + "): pass",
    "names": lambda size: ";".join(f"a{i}" for i in range(size // 8)),
    "marks apart": within("x = '", "e\u0301", "'"),
    "an item of JSON": within('{"bootstrap": "b.py", "params": {"a": [', "1,", "1]}}"),
    "a key of JSON": within('{"', "a", '": 1}'),
}


def every(size: int) -> Iterator[tuple[str, str]]:
    """Name and text of every long input, of about `size` characters."""
    for kind, parts in OVER_AND_OVER.items():
        for part in parts:
            yield f"{kind}: {part!a}", part * (size // len(part))
    for name, make in LONG.items():
        yield name, make(size)


NESTED = (
    ("(", "1", ")"), ("[", "1", "]"), ("{1:", "1", "}"), ("f(", "1", ")"), ("x[", "1", "]"),
    ("(lambda:", "1", ")"), ("-", "1", ""), ("not ", "1", ""), ("lambda:", "1", ""), ("x if x else ", "1", ""),
    ("", "a", ".b"), ("", "a", "()"), ("", "a", "[0]"), ("", "1", "+1"), ("", '""', '+"a"*4096'),
    ("a**", "a", ""), ("a=", "1", ""),
    ("(a:=", "1", ")"), ("[a for a in ", "a", "]"), ("@a\n", "def f():pass", ""), ("a<", "a", ""),
    ("", "if x: pass\n", "elif x: pass\n"), ("f'{", "1", "}'"), ("del (", "a", ")"), ("C(", "a", ")"),
    ("match x:\n case ", "a", ":pass"), ("async ", "x", ""),
)  # fmt: skip
"""Before, in the middle, after: constructs that are nested in themselves."""
DEPTHS = (20, 99, 201, 990, 6_100)


def deep() -> Iterator[tuple[str, str]]:
    """Name and text of every nested input. The depth at which Python stops differs by construct and release."""
    for before, middle, after in NESTED:
        for depth in DEPTHS:
            yield f"{before!a} {after!a} {depth} deep", before * depth + middle + after * depth
    for depth in DEPTHS[:3]:
        for head in ("def f():\n", "class A:\n", "try:\n", "if x:\n", "with a:\n", "async def f():\n"):
            body = "".join(" " * level + head for level in range(depth))
            yield f"{head!a} {depth} deep", body + " " * depth + "pass"
