"""Simulates a model that carries out requests about texts: plans, chooses tools, calls them, makes errors.

It can compute a few properties of a text, and nothing else. The functions that it makes are written by the
simulation's `funsearch` for their signatures: they run, but seldom compute what their names say.
"""

import contextlib
import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.policies.react import acts, call
from simulation.policies.situation import Situation, stable
from weavegen.kernel import prompts

if TYPE_CHECKING:
    from simulation.policies.dialogue import Conversation

FORMLESS = 0.12
"""Rate of answers that are not in the requested form."""
REPLANS = 0.15
"""Rate of requests for another plan if the library has no tool."""
SILENT = 0.04
"""Rate of messages without a call."""
WORDED = 0.1
"""Rate of results that ask_model phrases first."""
UNSURE = 0.05
"""Rate of requests that it abandons."""


@dataclass(frozen=True)
class Skill:
    """A property of a text that it can compute."""

    words: re.Pattern[str]
    """The words that name the property in a request."""
    name: str
    does: str
    arguments: str
    given: dict[str, Any]
    """Arguments in addition to the text."""
    returns: str
    special: str
    """Name of a function that is too specific."""
    python: str
    """The property as an expression of `text`."""
    neighbours: tuple[str, str, str]


_SKILLS = (
    Skill(
        re.compile(r"(most (frequent|common)|which) words?", re.IGNORECASE),
        "frequent_words",
        "Return the most frequent words of a text, the most frequent first. text: any text; n: how many words.",
        "text: str, n: int = 3",
        {"n": 3},
        "list",
        "most_frequent_word_of_report",
        "sorted(set(text.split()), key=lambda word: -text.split().count(word))[:3]",
        (
            "Which ten words does a poem use most?",
            "List the five most common words of a log file.",
            "What is the most frequent word of each chapter?",
        ),
    ),
    Skill(
        re.compile(r"how many (words|lines|letters)|number of (words|lines)|count", re.IGNORECASE),
        "count_units",
        "Return how many words, lines or letters a text has. text: any text; unit: words, lines or letters.",
        "text: str, unit: str = 'words'",
        {"unit": "words"},
        "int",
        "count_words_of_report",
        "len(text.split())",
        (
            "How many lines has a letter?",
            "Count the letters of a title.",
            "How many words has each paragraph of an essay?",
        ),
    ),
    Skill(
        re.compile(r"longest|shortest", re.IGNORECASE),
        "words_by_length",
        "Return the words of a text by their length, the longest first. text: any text; n: how many words.",
        "text: str, n: int = 3",
        {"n": 3},
        "list",
        "longest_word_of_report",
        "sorted(set(text.split()), key=len)[::-1][:3]",
        (
            "Which is the shortest word of a slogan?",
            "List the ten longest words of a speech.",
            "How long is the longest word of a dictionary?",
        ),
    ),
)
_QUOTED = re.compile(r'"([^"\n]{3,})"')
_LISTED = re.compile(r"^def (\w+)\(", re.MULTILINE)
_HEADS = {
    name: prompts.text(f"toolsmith_{name}").partition("\n")[0]
    for name in ("queries", "summary", "plan", "choice", "neighbours", "signature", "execute")
}


def knows(conversation: "Conversation") -> bool:
    """Whether the conversation is a stage of the toolsmith, or a question asked during its execution."""
    return conversation.system.partition("\n")[0] in _HEADS.values() or conversation.task.startswith(_WORD)


def write(conversation: "Conversation", seed: int, number: int) -> str:
    """The stage's answer, or the next calls."""
    chance = conversation.chance(seed, number)
    if conversation.task.startswith(_WORD):
        return f"The result: {conversation.task.rpartition(':')[2].strip()}"
    stage = next(name for name, head in _HEADS.items() if conversation.system.startswith(head))
    if stage == "execute":
        return _execute(conversation, chance)
    if stage not in ("summary", "signature") and chance.random() < FORMLESS:
        return chance.choice(["I would look at the text first, and then see.", "Use what is best: it depends.", ""])
    return _STAGES[stage](conversation, chance)


def _objective(conversation: "Conversation") -> str:
    return conversation.task.removeprefix("The request:\n").partition("\n\n")[0]


def _skill(text: str) -> Skill | None:
    return next((skill for skill in _SKILLS if skill.words.search(text)), None)


def _queries(conversation: "Conversation", chance: random.Random) -> str:
    objective = _objective(conversation)
    words = re.findall(r"[a-z]{4,}", objective.lower())[:8] or ["text"]
    chance.shuffle(words)
    lines = [f"data: {' '.join(words[:4])}", f"outcome: {' '.join(words[:5])}"]
    if (skill := _skill(objective)) is not None:
        lines.append(f"outcome: {skill.name.replace('_', ' ')}")
    lines.append(f"preference: {' '.join(words[:2])} language format length")
    return "\n".join(lines)


def _summary(conversation: "Conversation", chance: random.Random) -> str:
    memories: list[Any] = []
    for line in conversation.task.splitlines():
        if line.startswith("["):
            with contextlib.suppress(ValueError):  # it may be cut off
                memories += json.loads(line)
    lines = [f"{memory['objective']} {memory['outcome']}" for memory in memories if isinstance(memory, dict)][:2]
    lines += [f"The user has said: {memory}" for memory in memories if isinstance(memory, str)][:2]
    nothing = ("Nothing was found that bears on this.", "There is nothing about it in the data.")
    return " ".join(lines) or chance.choice(nothing)


def _plan(conversation: "Conversation", chance: random.Random) -> str:
    skill = _skill(_objective(conversation))
    if skill is None:
        return "approach: Look at it with a few lines of Python."
    name = skill.name if chance.random() < 0.8 else skill.special
    lines = [f"approach: Split the text into words and lines, then compute it.\ntool: {name}: {skill.does}"]
    if chance.random() < 0.5:
        lines.append("approach: Do it with wc and sort in the terminal.")
    return "\n".join(lines)


def _choice(conversation: "Conversation", chance: random.Random) -> str:
    skill = _skill(_objective(conversation))
    if skill is None:
        return "Python does this at once.\nnone: a few lines are enough"
    task = conversation.task.partition("Found in the library:")[2]
    listed = _LISTED.findall(task)
    if skill.name in listed:
        return f"{skill.name} does what is needed.\nuse: {skill.name}"
    if "This was the last plan" not in task and chance.random() < REPLANS:
        return "replan: the library has nothing of the kind, perhaps it works in smaller steps"
    return f"Nothing that is listed does it.\ncreate: {skill.name}: {skill.does}"


def _neighbours(conversation: "Conversation", chance: random.Random) -> str:
    skill = _skill(_objective(conversation))
    asked = skill.neighbours if skill is not None else ("What is in this file?", "Sort a list.", "Compare two texts.")
    return "\n".join(f"request: {text}" for text in asked)


def _signature(conversation: "Conversation", chance: random.Random) -> str:
    skill = _skill(_objective(conversation)) or _SKILLS[0]
    roll = chance.random()
    if roll < 0.5:
        line, does = f"def {skill.name}({skill.arguments}) -> {skill.returns}:", skill.does
    elif roll < 0.75:
        line, does = f"def {skill.special}() -> {skill.returns}:", "Return it for the report that is asked about."
    elif roll < 0.9:
        line, does = "def run(code: str) -> str:", "Return what some code prints. code: any Python code."
    else:
        return chance.choice(["It should take the text and return the result.", "```python\ndef (text:\n```"])
    return f'<think>What differs is the text.</think>\n```python\n{line}\n    """{does}"""\n    ...\n```'


_STAGES = {
    "queries": _queries, "summary": _summary, "plan": _plan, "choice": _choice, "neighbours": _neighbours,
    "signature": _signature,
}  # fmt: skip
_WORD = "Word this as a short sentence for the user: "


def _execute(conversation: "Conversation", chance: random.Random) -> str:
    """Ask for the text if there is none, compute with a tool or with Python, phrase the result, finish."""
    objective, responses = _objective(conversation), conversation.responses
    if chance.random() < SILENT:
        return "<think>Let me see what is left to do.</think>\nI am nearly done."
    outputs = [str(response.get("output", "")) for response in responses if response.get("success")]
    asked = any('"ask_user"' in text for text in conversation.said)
    quoted = _QUOTED.findall(objective)
    if not quoted and asked and outputs:
        quoted, outputs = [outputs[0]], outputs[1:]
    if not quoted and not asked:
        return acts(chance, "Which text is meant?", call("ask_user", question="Which text do you mean?"))
    skill, text = _skill(objective), quoted[-1] if quoted else objective
    if not outputs and len(responses) < 6:
        if skill is not None and f'"name": "{skill.name}"' in conversation.system and chance.random() < 0.9:
            given = {"text": text, **skill.given} if chance.random() < 0.95 else {"words": text}
            return acts(chance, f"{skill.name} computes it.", call(skill.name, **given))
        code = f"text = {text!r}\n{skill.python if skill is not None else 'len(text)'}"
        return acts(chance, "A few lines of Python.", call("python", code=code))
    if not outputs or chance.random() < UNSURE:
        return call("finish", success=False, result="I could not find it out.")
    result = outputs[-1].strip()[:200]
    if len(outputs) == 1 and chance.random() < WORDED:
        question = call("ask_model", question=_WORD + result)
        code = call("python", code=f"ask_model({_WORD + result!r})")
        return acts(chance, "I have it put into words.", chance.choice([question, code]))
    return f"<think>That is it.</think>\n{call('finish', success=True, result=f'The result is {result}')}"


# ---------------------------------------------------------------------------------------- its evaluator


_ABOUT = ("Can this function do its part", "Could this function,", "Does this function do the work itself")


class Judge:
    """The policy that answers the questions about signatures; see agents/toolsmith/make.py."""

    def knows(self, situation: Situation) -> bool:
        """Whether the question is about a signature."""
        return (situation.question or "").startswith(_ABOUT)

    def write(self, situation: Situation, seed: int, number: int) -> str:
        """An empty text."""
        return ""

    def log_odds(self, situation: Situation) -> float:
        """Arguments make a function general. With the argument `code` it does not work by itself."""
        question = situation.question or ""
        lines = re.findall(r"^def (\w+)\((.*)\)", situation.body[-2000:], re.MULTILINE)
        if not lines:
            return -4.0
        _, arguments = lines[-1]
        noise = stable(situation.body[-500:] + question, -0.7, 0.7)
        if question.startswith(_ABOUT[2]):
            return (-3.0 if "code" in arguments else 2.0) + noise
        if question.startswith(_ABOUT[1]):
            return (2.0 if arguments else -2.5) + noise
        return (1.0 if "code" in arguments else 2.5) + noise


judge = Judge()
