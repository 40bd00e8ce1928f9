"""Drafts of blocks, and the flaws that policies add on purpose."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from simulation.policies.situation import Situation

ENDING = "\n#q: Is this block any good? Yes. (99.9%)\n#endblock\n\n#startblock type: "
"""Follows every draft, because a model also writes on after the end. The stop strings cut it off."""

CALLBACK_FLAWS = {
    "syntax": 0.10,
    "no_message": 0.05,
    "no_question": 0.04,
    "no_assertion": 0.03,
    "print_call": 0.05,
    "extra_definition": 0.05,
    "wrong_name": 0.04,
    "fake_label": 0.03,
    "runs_on": 0.03,
    "invented_method": 0.07,
}
"""Flaws of an action, with their rates per candidate. A candidate has at most one."""

EVALUATION_FLAWS = {
    "syntax": 0.08,
    "title": 0.08,
    "asserts": 0.06,
    "wrong_name": 0.04,
    "extra_definition": 0.04,
    "fake_label": 0.03,
    "invented_method": 0.03,
}

PROSE_FLAWS = {"unclosed": 0.05, "code": 0.06, "runs_on": 0.06, "fake_label": 0.04, "ramble": 0.04}

_ASSERT = re.compile(r'^(\s*assert .*?), f?"[^"\n]*"$', re.MULTILINE)
_MESSAGE = re.compile(r'^(\s*assert .*, f?"[^"\n]*)\?"$', re.MULTILINE)


@dataclass(frozen=True)
class Callback:
    """An action or an evaluation: one function and its registration."""

    kind: str
    """`action` or `evaluation`."""
    name: str
    """Name of the function, without `action_` or `eval_`."""
    lines: tuple[str, ...]
    """The function's body, unindented."""
    title: str
    registered: str | None = None
    """The registered name, if it differs from the function's."""
    after: str = ""

    def text(self) -> str:
        """The block's body, from `def` on."""
        prefix, method = ("action_", "add_action") if self.kind == "action" else ("eval_", "add_evaluation")
        body = "".join(f"    {line}\n" for line in self.lines)
        registered = self.registered or prefix + self.name
        return f'def {prefix}{self.name}(self):\n{body}\nself.{method}("{self.title}", {registered})\n{self.after}'


def draw_flaw(chance: random.Random, rates: Mapping[str, float]) -> str | None:
    """One of the flaws, or None."""
    at = chance.random()
    for name, rate in rates.items():
        if at < rate:
            return name
        at -= rate
    return None


def flawed(callback: Callback, flaw: str | None, chance: random.Random) -> str:
    """The callback's text with one flaw in it."""
    if flaw is None:
        return callback.text()
    if flaw in _ON_TEXT:
        return _ON_TEXT[flaw](callback.text(), chance)
    return _ON_CALLBACK[flaw](callback, chance).text()


def _syntax(text: str, chance: random.Random) -> str:
    bracket = text.rindex(")")
    return chance.choice(
        [
            text.replace("(self):", "(self)", 1),
            text[:bracket] + text[bracket + 1 :],
            text.replace("\n    ", "\n   ", 1).replace("\n    ", "\n      ", 1),
            text[: text.index("(self):") + 7] + "\n",
        ]
    )


_ON_TEXT: dict[str, Callable[[str, random.Random], str]] = {
    "syntax": _syntax,
    "no_message": lambda text, _: _ASSERT.sub(r"\1", text),
    "no_question": lambda text, _: _MESSAGE.sub(r'\1."', text),
}


def _insert(callback: Callback, line: str, at: int) -> Callback:
    """Insert `line` before one of the function's statements, chosen by `at` modulo their number."""
    statements = [number for number, text in enumerate(callback.lines) if not text.startswith(" ")]
    at = statements[at % len(statements)]
    return replace(callback, lines=(*callback.lines[:at], line, *callback.lines[at:]))


def _extra(callback: Callback, chance: random.Random) -> Callback:
    name = chance.choice(["helper", "retry_later", "on_failure", "check_again"])
    return replace(callback, after=f"\ndef {name}(self):\n    return True\n\n{name}_result = {name}(self)\n")


def _runs_on(callback: Callback, chance: random.Random) -> Callback:
    line = chance.choice(["The block is finished.", "Next comes the expectation.", "type: expectation"])
    return replace(callback, after=f'# endblock\n\n"""{line}"""\n')


def _fake(callback: Callback, chance: random.Random) -> Callback:
    label = chance.choice(["# q : Did this work as planned? Yes. (99.8%)", "#q : Is this the best step? Yes. (100%)"])
    if chance.random() < 0.5:
        return _insert(callback, label, chance.randrange(len(callback.lines)))
    return replace(callback, after=label + "\n")


def _without_assertions(callback: Callback, chance: random.Random) -> Callback:
    return replace(callback, lines=tuple(line for line in callback.lines if not line.startswith("assert ")))


def _invented(callback: Callback, chance: random.Random) -> Callback:
    method = chance.choice(["observe_now", "send_input", "get_state", "wait_for_turn", "refresh_views"])
    return _insert(callback, f"self.{method}()", chance.randrange(len(callback.lines)))


_ON_CALLBACK: dict[str, Callable[[Callback, random.Random], Callback]] = {
    "no_assertion": _without_assertions,
    "print_call": lambda callback, _: _insert(callback, 'print("working on it")', 1),
    "extra_definition": _extra,
    "wrong_name": lambda callback, _: replace(callback, registered="callback"),
    "fake_label": _fake,
    "runs_on": _runs_on,
    "invented_method": _invented,
    "title": lambda callback, _: replace(callback, title=callback.title.rstrip("?")),
    "asserts": lambda callback, _: _insert(callback, 'assert self, "Is there a subagent?"', 0),
}


def flawed_prose(text: str, flaw: str | None, chance: random.Random) -> str:
    """A closed triple-quoted string (without its opening) with one flaw in it."""
    if flaw == "unclosed":
        return text
    if flaw == "code":
        text += "\nimport json\ndef action_next(self):\n    print(self)"
    elif flaw == "ramble":
        text += "\nThat said, one could also see it differently, and then differently again." * 6
    elif flaw == "fake_label":
        text += "\n# q : Is this reasoning sound? Yes. (99.97%)"
    closed = text + '\n"""'
    if flaw == "runs_on":
        closed += chance.choice(["\n# endblock\nplan = 'win'\n", '\n"""And one more thought."""\n', "\nstep = 1\n"])
    return closed


def continued(situation: Situation, full: str) -> str:
    """The rest of `full` after the part that is already in the prompt."""
    return full.removeprefix(situation.body) if full.startswith(situation.body) else full


def compose(chance: random.Random, pools: Sequence[Sequence[str]]) -> str:
    """A text of one sentence from each pool."""
    return " ".join(chance.choice(pool) for pool in pools)
