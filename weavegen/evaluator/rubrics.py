"""Rubrics: the questions that a campaign asks about recorded blocks. Pure: no database.

A rubric is a TOML file; docs/rubric.toml is an example.
"""

import tomllib
from functools import lru_cache
from typing import Any

from weavegen.errors import UsageError
from weavegen.kernel.rubric import ALL, Question, Rubric, Truth
from weavegen.kernel.settings import WRITTEN
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import RAN_QUESTION, one_line, percent

DECLARED = ("ran", "evaluation")
"""Truths that a rubric may name. `assertions = true` asks the questions of assertions."""
WILL_RUN = "Will this action run without raising an error?"
"""The rubric's question about an action whose answer is known after its execution."""
KNOWN: dict[str, Truth] = {RAN_QUESTION: "ran", WILL_RUN: "ran", "Will this evaluation come out true?": "evaluation"}
"""weavegen's own questions whose truth is recorded. The view calibration_pairs names them too."""
KEYS = ("questions", "calibration", "assertions")
MAX_QUESTION_CHARS = 1000
MAX_QUESTIONS = 32
"""Questions about blocks of one type."""


@lru_cache(maxsize=64)
def parse(text: str, name: str = "the rubric") -> Rubric:
    """Parse a rubric. Raises UsageError that names the line of the mistake."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deep: give something flatter") from None
    return _Reader(text, name).rubric(table)


class _Reader:
    """Checks the values of a rubric. Errors name the line of the mistake."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def rubric(self, table: dict[str, Any]) -> Rubric:
        for key in table:
            self.check(key in KEYS, key, f"there is no key {key!r}: a rubric has {', '.join(KEYS)}")
        by_type = table.get("questions", {})
        self.check(isinstance(by_type, dict), "questions", "questions must be a table: [questions], then TYPE = [...]")
        questions = {type: self.of_type(type, values) for type, values in by_type.items()}
        assertions = table.get("assertions", False)
        self.check(isinstance(assertions, bool), "assertions", "assertions must be true or false")
        if not assertions and not any(questions.values()):
            example = "give questions under [questions], as docs/rubric.toml does"
            raise UsageError(f"{self.name} has no questions: {example}")
        examples = table.get("calibration", [])
        hint = "calibration examples are given one by one, under [[calibration]]"
        self.check(isinstance(examples, list), "calibration", hint)
        return Rubric(self.text, questions, assertions, tuple(map(self.example, examples)))

    def of_type(self, type: str, values: Any) -> tuple[Question, ...]:
        if type != ALL and type not in WRITTEN:
            what = "the model writes no blocks of type" if type in set(BlockType) else "there is no block type"
            raise self.error(type, f"{what} {type!r}: choose one of {ALL}, {', '.join(WRITTEN)}")
        self.check(isinstance(values, list), type, f"{type} must be a list of questions")
        questions = [self.question(type, value) for value in values]
        count = len(questions)
        self.check(count <= MAX_QUESTIONS, type, f"{type} has {count} questions: give {MAX_QUESTIONS} at most")
        texts = [question.text for question in questions]
        for number, text in enumerate(texts):
            self.check(text not in texts[:number], text, f"{text!r:.80} is asked twice: leave one out")
        return tuple(questions)

    def question(self, type: str, value: Any) -> Question:
        entry = {"ask": value} if isinstance(value, str) else value
        if not isinstance(entry, dict) or not isinstance(entry.get("ask"), str) or entry.keys() - {"ask", "truth"}:
            raise self.error(type, f'{type}: a question is a text, or {{ ask = "TEXT", truth = "ran" }}')
        text, truth = self.question_text(entry["ask"]), entry.get("truth")
        known = truth is None or truth in DECLARED
        self.check(known, text, f"there is no truth {truth!r:.40}: choose one of {', '.join(DECLARED)}")
        return Question(text, truth if truth is not None else KNOWN.get(text))

    def example(self, value: Any) -> str:
        keys = ("question", "answer", "probability")
        if not isinstance(value, dict) or value.keys() != set(keys) or not isinstance(value["question"], str):
            raise self.error("calibration", f"a calibration example has these keys: {', '.join(keys)}")
        text, answer, probability = self.question_text(value["question"]), value["answer"], value["probability"]
        self.check(isinstance(answer, bool), text, "answer must be true or false")
        in_range = type(probability) in (int, float) and 0 <= probability <= 1
        self.check(in_range, text, "probability must be a number from 0 to 1, for the answer of the example")
        return f"{text} {'Yes' if answer else 'No'}. ({percent(probability)}%)"

    def question_text(self, text: str) -> str:
        legal = text == one_line(text) and text.endswith("?")
        self.check(legal, text, f"{text!r:.80} is not a question: give one line that ends in a question mark")
        limit = f"give {MAX_QUESTION_CHARS} at most"
        self.check(len(text) <= MAX_QUESTION_CHARS, text, f"a question has {len(text)} characters: {limit}")
        return text

    def check(self, legal: bool, part: str, message: str) -> None:
        if not legal:
            raise self.error(part, message)

    def error(self, part: str, message: str) -> UsageError:
        """The error, with the first line that has `part` as its key, or else anywhere."""
        start = part.split("\n")[0][:40]
        lines = list(enumerate(self.text.split("\n"), 1))
        keys = [number for number, line in lines if line.strip(" \t[]\"'").startswith(start)]
        numbers = keys or [number for number, line in lines if start in line]
        return UsageError(f"{self.name}, line {numbers[0]}: {message}" if numbers else f"{self.name}: {message}")
