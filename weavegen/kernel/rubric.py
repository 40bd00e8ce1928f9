"""Rubrics as values: the yes/no questions about blocks of each type."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from weavegen.kernel import prompts
from weavegen.kernel.settings import WRITTEN

Truth = Literal["ran", "evaluation", "assertion"]
"""Where the right answer to a question about a block comes from: whether the block ran without errors; whether the
evaluation that it registered was true; what the assertion that asks the question found."""
ALL = "all"
"""Stands for all block types."""


@dataclass(frozen=True)
class Question:
    """A yes/no question. `truth`: where its right answer comes from; None if it is not recorded."""

    text: str
    truth: Truth | None = None


@dataclass(frozen=True)
class Rubric:
    """The questions about blocks of each type."""

    text: str
    """The file's text."""
    questions: dict[str, tuple[Question, ...]]
    """By block type, or ALL."""
    assertions: bool = False
    """Also ask the questions of the assertions in an executed block."""
    calibration: tuple[str, ...] = ()
    """Examples `QUESTION Yes. (90%)`. In the prompt they follow weavegen's own."""

    @property
    def version(self) -> str:
        """A hash of all texts that the model reads because of the rubric."""
        text = f"{self.text}\x00{prompts.calibration()}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def types(self) -> list[str]:
        """Block types with questions."""
        return [type for type in WRITTEN if self.questions.get(ALL) or self.questions.get(type)]

    def about(self, type: str) -> tuple[Question, ...]:
        """The questions about a block of this type, each once."""
        both = (*self.questions.get(ALL, ()), *self.questions.get(type, ()))
        return tuple({question.text: question for question in reversed(both)}.values())[::-1]

    def asked(self, question: str) -> str:
        """The question as it follows `#q: ` in the prompt, behind the rubric's own calibration examples."""
        return "\n#q: ".join((*self.calibration, question))
