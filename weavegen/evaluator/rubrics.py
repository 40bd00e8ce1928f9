"""Rubrics: what a campaign asks the model about recorded blocks. A TOML file; docs/rubric.toml is an example.

Pure: no database, no queue.
"""

import hashlib
import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from weavegen.errors import UsageError
from weavegen.kernel import prompts
from weavegen.kernel.settings import WRITTEN
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import RAN_QUESTION, one_line

Truth = Literal["ran", "evaluation", "assertion"]
"""What tells the right answer to a question about a block: whether it ran without errors; whether the evaluation
that it registered came out true; how the assertion came out that asks the question."""
DECLARED = ("ran", "evaluation")
"""Truths that a rubric may name. Assertions are asked about by `assertions = true`."""
WILL_RUN = "Will this action run without raising an error?"
"""The rubric's question that an action's execution answers."""
KNOWN: dict[str, Truth] = {
    RAN_QUESTION: "ran",
    WILL_RUN: "ran",
    "Will this evaluation come out true?": "evaluation",
}
"""Questions of weavegen's own whose truth is recorded. The view calibration_pairs names them too."""
ALL = "all"
"""In place of a block type: all types."""
TOP = ("questions", "calibration", "assertions")
LONGEST = 1000
"""Characters of a question."""
MOST = 32
"""Questions about one block."""


@dataclass(frozen=True)
class Question:
    """A yes/no question, and what tells its right answer; None: nothing that is recorded."""

    text: str
    truth: Truth | None = None


@dataclass(frozen=True)
class Rubric:
    """What is asked about blocks of each type."""

    text: str
    """The file's text."""
    questions: dict[str, tuple[Question, ...]]
    """By block type, or ALL."""
    assertions: bool = False
    """Of a block that was executed also the questions that its own assertions ask."""
    calibration: tuple[str, ...] = field(default=())
    """Examples, as lines that end in an answer and its probability. They stand after weavegen's own."""

    @property
    def version(self) -> str:
        """Changes with everything that the model reads because of the rubric."""
        text = f"{self.text}\x00{prompts.calibration()}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def types(self) -> list[str]:
        """Block types that it has questions about."""
        return list(WRITTEN) if self.questions.get(ALL) else [type for type in WRITTEN if self.questions.get(type)]

    def about(self, type: str) -> tuple[Question, ...]:
        """What is asked about a block of this type, each question once."""
        both = (*self.questions.get(ALL, ()), *self.questions.get(type, ()))
        return tuple({question.text: question for question in reversed(both)}.values())[::-1]

    def wording(self, question: str) -> str:
        """The question as it follows `#q: ` in the prompt: behind the rubric's own calibration examples."""
        return "\n#q: ".join((*self.calibration, question))


@lru_cache(maxsize=64)
def parse(text: str, name: str = "the rubric") -> Rubric:
    """A rubric of its text. Raises UsageError, with the line of what is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is no TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deep: give something flatter") from None
    return _Reader(text, name).rubric(table)


class _Reader:
    """Turns TOML's values into a rubric, and says in which line what is wrong stands."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def rubric(self, table: dict[str, Any]) -> Rubric:
        for key in table:
            if key not in TOP:
                raise self.wrong(key, f"there is no key {key!r}: a rubric has {', '.join(TOP)}")
        asked = table.get("questions", {})
        if not isinstance(asked, dict):
            raise self.wrong("questions", "questions must be a table: [questions], then TYPE = [...]")
        questions = {type: self.of_type(type, values) for type, values in asked.items()}
        assertions = table.get("assertions", False)
        if not isinstance(assertions, bool):
            raise self.wrong("assertions", "assertions must be true or false")
        if not assertions and not any(questions.values()):
            raise UsageError(
                f"{self.name} asks nothing: give questions under [questions], as docs/rubric.toml does"
            )
        examples = table.get("calibration", [])
        if not isinstance(examples, list):
            raise self.wrong("calibration", "calibration examples are given one by one, under [[calibration]]")
        return Rubric(self.text, questions, assertions, tuple(map(self.example, examples)))

    def of_type(self, type: str, values: Any) -> tuple[Question, ...]:
        if type != ALL and type not in WRITTEN:
            known = f"{ALL}, {', '.join(WRITTEN)}"
            what = "the model writes no blocks of type" if type in set(BlockType) else "there is no block type"
            raise self.wrong(type, f"{what} {type!r}: choose of {known}")
        if not isinstance(values, list):
            raise self.wrong(type, f"{type} must be a list of questions")
        found = [self.question(type, value) for value in values]
        if len(found) > MOST:
            raise self.wrong(type, f"{type} has {len(found)} questions: give {MOST} at most")
        for number, question in enumerate(found):
            if question.text in [other.text for other in found[:number]]:
                raise self.wrong(question.text, f"{question.text!r:.80} is asked twice: leave one out")
        return tuple(found)

    def question(self, type: str, value: Any) -> Question:
        given = {"ask": value} if isinstance(value, str) else value
        if not isinstance(given, dict) or not isinstance(given.get("ask"), str) or given.keys() - {"ask", "truth"}:
            raise self.wrong(type, f'{type}: a question is a text, or {{ ask = "TEXT", truth = "ran" }}')
        text, truth = self.checked(given["ask"]), given.get("truth")
        if truth is not None and truth not in DECLARED:
            raise self.wrong(text, f"there is no truth {truth!r:.40}: choose of {', '.join(DECLARED)}")
        return Question(text, truth if truth is not None else KNOWN.get(text))

    def example(self, value: Any) -> str:
        keys = ("question", "answer", "probability")
        if not isinstance(value, dict) or value.keys() != set(keys) or not isinstance(value["question"], str):
            raise self.wrong("calibration", f"a calibration example has these keys: {', '.join(keys)}")
        text, answer, probability = self.checked(value["question"]), value["answer"], value["probability"]
        if not isinstance(answer, bool):
            raise self.wrong(text, "answer must be true or false")
        if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise self.wrong(text, "probability must be a number from 0 to 1: that of the answer given")
        percent = f"{probability * 100:.3f}".rstrip("0").rstrip(".")
        return f"{text} {'Yes' if answer else 'No'}. ({percent}%)"

    def checked(self, text: str) -> str:
        """A question. Raises UsageError where it is none."""
        if text != one_line(text) or not text.endswith("?"):
            raise self.wrong(text, f"{text!r:.80} is no question: give one line that ends in a question mark")
        if len(text) > LONGEST:
            raise self.wrong(text, f"a question has {len(text)} characters: give {LONGEST} at most")
        return text

    def wrong(self, what: str, message: str) -> UsageError:
        """The error, with the first line in which `what` stands, as a key or as a text."""
        part = what.split("\n")[0][:40]
        lines = self.text.split("\n")
        keys = [n for n, line in enumerate(lines, 1) if line.strip(" \t[]\"'").startswith(part)]
        found = keys or [n for n, line in enumerate(lines, 1) if part in line]
        return UsageError(f"{self.name}, line {found[0]}: {message}" if found else f"{self.name}: {message}")
