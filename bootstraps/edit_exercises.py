"""Exercises in editing a text file, without end, for the bootstrap nano_exercises.

    exercise = make(seed=7, number=3, difficulty=2)
    exercise.steps    what is to be done, in order
    exercise.before   the lines of the file at first
    exercise.after    the lines that it must have in the end

Equal arguments give equal exercises. A greater difficulty gives longer files, more steps and more kinds of them.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

Lines = list[str]
MOST_JOINED = 76
"""Characters of a line that two lines are joined to, so that it fits on the screen of a terminal."""

WHO = ("gardener", "baker", "captain", "teacher", "neighbour", "carpenter", "postman", "doctor", "miller", "painter")
DID = ("carried", "mended", "counted", "painted", "cleaned", "bought", "sold", "found", "borrowed", "moved")
WHAT = ("ladder", "basket", "lantern", "barrel", "bench", "saddle", "kettle", "window", "wagon", "mirror")
WHERE = ("behind the barn", "near the harbour", "at the market", "under the bridge", "beside the orchard")
SUBSTITUTES = {word: words for words in (WHO, DID, WHAT) for word in words}
"""By word: what may stand in its place."""
NUMBERS = ("two", "three", "four", "five", "seven", "nine", "twelve", "twenty")
FUNCTIONS = (
    ("def price({thing}s):", "    total = {thing}s * {number}", "    return total"),
    ("def longest_{thing}({thing}s):", "    return max({thing}s, key=len)"),
    ("for {thing} in {thing}s:", "    if {thing} > {number}:", "        print({thing})"),
    ("while {thing} < {number}:", "    {thing} = {thing} + 1"),
    ("with open('{thing}.txt') as file:", "    {thing}_lines = file.readlines()"),
    ("def has_{thing}(names):", "    return '{thing}' in names"),
)


@dataclass(frozen=True)
class Exercise:
    """An exercise. `steps` are to be done one after the other; lines are counted from 1 in the text as it is then."""

    number: int
    steps: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


Step = Callable[[Random, Lines], tuple[str, Lines]]
"""Chooses a change of the lines, and gives its instruction and the changed lines."""


def exercises(seed: int, difficulty: int) -> Iterator[Exercise]:
    """All exercises, from number 0 on."""
    return (make(seed, number, difficulty) for number in itertools.count())


def make(seed: int, number: int, difficulty: int) -> Exercise:
    """An exercise of difficulty 1 to 5. Exercise 0 only replaces a line: it is the one to begin with."""
    random = Random(f"{seed}/{number}/{difficulty}")
    write = random.choice((prose, prose, code, inventory))
    before = write(random, 3 + 3 * difficulty)
    if number == 0:
        steps: list[Step] = [replace]
    else:
        kinds = KINDS[: 2 + 2 * difficulty]
        steps = random.sample(kinds, k=1 + (difficulty - 1) // 2)
    if misspell in steps:  # the faults are in the file from the first, so correcting them comes first
        steps = [misspell, *(step for step in steps if step is not misspell)]
    told, after = [], before
    for step in steps:
        instruction, changed = step(random, after)
        if step is misspell:
            before = changed
        else:
            after = changed
        told.append(instruction)
    if before == after:  # two steps took each other back
        instruction, after = replace(random, after)
        told.append(instruction)
    return Exercise(number, tuple(told), tuple(before), tuple(after))


# -------------------------------------------------------------------------------------------- texts


def prose(random: Random, count: int) -> Lines:
    """Sentences, one a line."""
    return [sentence(random) for _ in range(count)]


def sentence(random: Random) -> str:
    return f"The {random.choice(WHO)} {random.choice(DID)} a {random.choice(WHAT)} {random.choice(WHERE)}."


def code(random: Random, count: int) -> Lines:
    """Functions and loops of a Python file."""
    lines: Lines = []
    while len(lines) < count:
        fill = {"thing": random.choice(WHAT), "number": random.randrange(2, 50)}
        lines += [line.format(**fill) for line in random.choice(FUNCTIONS)]
    return lines


def inventory(random: Random, count: int) -> Lines:
    """A list of goods."""
    return [f"{random.choice(WHAT)}: {random.choice(NUMBERS)}, {random.choice(WHERE)}" for _ in range(count)]


# -------------------------------------------------------------------------------------------- steps


def insert(random: Random, lines: Lines) -> tuple[str, Lines]:
    at, new = random.randrange(len(lines) + 1), sentence(random)
    where = f"so that it is line {at + 1}" if at < len(lines) else "at the end of the file"
    return f"Insert this line {where}: {new}", [*lines[:at], new, *lines[at:]]


def delete(random: Random, lines: Lines) -> tuple[str, Lines]:
    first = random.randrange(len(lines) - 2)
    count = random.randint(1, 2)
    which = f"line {first + 1}" if count == 1 else f"lines {first + 1} and {first + 2}"
    return f"Delete {which}.", [*lines[:first], *lines[first + count :]]


def replace(random: Random, lines: Lines) -> tuple[str, Lines]:
    at = random.randrange(len(lines))
    new = next(new for new in iter(lambda: sentence(random), "") if new != lines[at])
    return f"Put this line in the place of line {at + 1}: {new}", [*lines[:at], new, *lines[at + 1 :]]


def misspell(random: Random, lines: Lines) -> tuple[str, Lines]:
    """Gives the lines with faults in them: the step is to correct these."""
    faulty = list(lines)
    places = [at for at, line in enumerate(lines) if long_words(line)]
    chosen = sorted(random.sample(places, min(len(places), random.randint(1, 2))))
    for at in chosen:
        word = random.choice(long_words(lines[at]))
        faulty[at] = re.sub(rf"\b{word}\b", scrambled(random, word), lines[at], count=1)
    which = " and the one in line ".join(str(at + 1) for at in chosen)
    return f"Correct the misspelt word in line {which}.", faulty


def long_words(line: str) -> list[str]:
    """The words of six letters or more that have two different neighbours inside."""
    return [word for word in re.findall(r"\b[a-z]{6,}\b", line) if len(set(word[1:-1])) > 1]


def scrambled(random: Random, word: str) -> str:
    """The word with two neighbouring letters inside it exchanged."""
    at = random.choice([at for at in range(1, len(word) - 2) if word[at] != word[at + 1]])
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def move(random: Random, lines: Lines) -> tuple[str, Lines]:
    source, target = random.sample(range(len(lines)), 2)
    rest = [*lines[:source], *lines[source + 1 :]]
    return f"Move line {source + 1} so that it becomes line {target + 1}.", [
        *rest[:target], lines[source], *rest[target:],
    ]  # fmt: skip


def exchange(random: Random, lines: Lines) -> tuple[str, Lines]:
    first, second = sorted(random.sample(range(len(lines)), 2))
    changed = list(lines)
    changed[first], changed[second] = lines[second], lines[first]
    return f"Exchange lines {first + 1} and {second + 1}.", changed


def substitute(random: Random, lines: Lines) -> tuple[str, Lines]:
    """Search and replace: a word that is part of no other word, by one that the text does not have."""
    text = "\n".join(lines)
    words = sorted(set(re.findall(r"\b[a-z]{4,}\b", text)))
    whole = [word for word in words if len(re.findall(rf"\b{word}\b", text)) == text.count(word)]
    old = max(whole, key=lambda word: (word in SUBSTITUTES, text.count(word), word))
    new = random.choice([word for word in SUBSTITUTES.get(old, WHAT) if word not in text] or ["something"])
    return f"Replace every `{old}` by `{new}`.", text.replace(old, new).split("\n")


def copy(random: Random, lines: Lines) -> tuple[str, Lines]:
    at = random.randrange(len(lines))
    return f"Add a copy of line {at + 1} at the end of the file.", [*lines, lines[at]]


def reorder(random: Random, lines: Lines) -> tuple[str, Lines]:
    count = random.randint(3, min(5, len(lines)))
    first = random.randrange(len(lines) - count + 1)
    part = list(reversed(lines[first : first + count]))
    return f"Turn the order of lines {first + 1} to {first + count} round: the last of them comes first.", [
        *lines[:first], *part, *lines[first + count :],
    ]  # fmt: skip


def sort(random: Random, lines: Lines) -> tuple[str, Lines]:
    count = random.randint(3, min(5, len(lines)))
    first = random.randrange(len(lines) - count + 1)
    part = sorted(lines[first : first + count])
    return f"Sort lines {first + 1} to {first + count}, as Python's `sorted` does.", [
        *lines[:first], *part, *lines[first + count :],
    ]  # fmt: skip


def indent(random: Random, lines: Lines) -> tuple[str, Lines]:
    count = random.randint(1, 3)
    first = random.randrange(len(lines) - count + 1)
    changed = [f"    {line}" if first <= at < first + count else line for at, line in enumerate(lines)]
    which = f"line {first + 1}" if count == 1 else f"each of lines {first + 1} to {first + count}"
    return f"Put four blanks before {which}.", changed


def join(random: Random, lines: Lines) -> tuple[str, Lines]:
    shortest = min(range(len(lines) - 1), key=lambda at: len(lines[at]) + len(lines[at + 1]))
    if len(lines[shortest]) + len(lines[shortest + 1].lstrip()) >= MOST_JOINED:
        return delete(random, lines)
    joined = f"{lines[shortest]} {lines[shortest + 1].lstrip()}"
    told = f"Join lines {shortest + 1} and {shortest + 2} into one, with one blank between them."
    return told, [*lines[:shortest], joined, *lines[shortest + 2 :]]


KINDS: Sequence[Step] = (
    insert, delete, replace, misspell, move, exchange, substitute, copy, reorder, sort, indent, join,
)  # fmt: skip
"""From the easiest to the hardest: difficulty 1 has the first four, each further one two more."""
