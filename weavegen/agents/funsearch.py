"""FunSearch: one function made better over generations of programs that the model writes.

After Romera-Paredes et al. (Nature 625, 2024): the model is shown some of the best programs so far and writes new
ones; those that pass a test are scored by an evaluator, and live on islands (islands.py). What is given is a first
version of the function, an evaluator, perhaps a test; what is missing the model writes first, piece by piece, each
run in the box before it counts. A tick is a piece, or a generation: for each island a message with its best
programs, `candidates` answers to it, all of them tried (box/trial.py) and kept in the table `programs`;
the best answer becomes part of the trace.
"""

import json
import keyword
import re
from collections.abc import Sequence

import msgspec

from weavegen.agents import islands
from weavegen.agents.dialogue import THOUGHT, Reply, message, reply, say, taken, task_of
from weavegen.agents.islands import Island, Program
from weavegen.agents.program import Part, Tick
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program as Journalled
from weavegen.kernel.steps import Candidate, Ended, Executed, Note, ProgramEvaluated
from weavegen.trace.blocks import Block, BlockType

TURNS = 12
"""Messages in which the model may write what is missing."""
RESET = 3
"""Generations after which the worse half of the islands is founded anew."""
LONGEST = 8_000
"""Characters of a program."""
AT_ONCE = 16
"""Programs in one operation of the environment, at most (box/trial.py)."""
STARTING = 2.0
"""Of such an operation's seconds, those that are not the programs' (likewise)."""
UNWRITTEN = ("test: NotImplementedError", "test: AssertionError", "evaluator: NotImplementedError")
"""How test and evaluator may end as long as there is no first version."""
BLOCKS = 3
"""Code blocks of a message that are looked at while pieces are missing."""
FENCE = re.compile(r"^```[^\n`]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
STUB = re.compile(r"^ +raise NotImplementedError\b.*\s*\Z", re.MULTILINE)
DEFINED = re.compile(r"^def +(\w+)", re.MULTILINE)


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function to be made better."""

    name: str
    """Of the function."""
    description: str
    """What it is for, as the model reads it."""
    skeleton: str = ""
    """Source of its first version, with signature and docstring. "": the model writes one; likewise where this one
    only raises NotImplementedError, with its signature."""
    evaluator: str = ""
    """Source that defines `evaluate(function)`: a number, or one for each instance; higher is better. "": the
    model writes it, and the tests if there are none."""
    tests: str = ""
    """Source that defines `test(function)`, which raises where an answer is wrong. "": none."""
    score_to_reach: float | None = None
    """The search ends when a program has it."""
    generations: int = 8
    candidates: int = 8
    """Programs per island and generation."""
    islands: int = 4
    seconds: float = 3.0
    """Wall time of one program's test and evaluation together."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise ValueError(f"name {self.name!r:.50} can't be a function's: give one like count_words")
        if not self.description.strip():
            raise ValueError("description is empty: say what the function is for")
        for what, most in (("generations", 1_000), ("candidates", 64), ("islands", 16)):
            if not 1 <= getattr(self, what) <= most:
                raise ValueError(f"{what} is {getattr(self, what)}: give 1 to {most:,}")
        if not 0.1 <= self.seconds <= 60:
            raise ValueError(f"seconds is {self.seconds}: give 0.1 to 60")


class Pieces(msgspec.Struct, frozen=True):
    """What a search needs; "" is not there yet."""

    tests: str = ""
    evaluator: str = ""
    skeleton: str = ""


class State(msgspec.Struct, frozen=True):
    """What a tick hands on to the next."""

    pieces: Pieces
    islands: tuple[Island, ...] = ()
    """Empty as long as pieces are missing."""
    generation: int = 0
    tried: int = 0
    """Programs in all."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of a program's trial."""

    success: bool
    """It runs and passes the test."""
    score: float | None = None
    scores: tuple[float, ...] = ()
    error: str | None = None
    output: str = ""


class Result(msgspec.Struct, frozen=True):
    """What a trace returns: the best program."""

    name: str
    description: str
    source: str
    score: float
    generation: int
    """In which it was written; 0: it is the first version."""
    tests: str
    evaluator: str
    program: int
    """Its number."""


def funsearch(t: Tick) -> Journalled:
    """The missing pieces first, one a tick; then a generation a tick."""
    task = task_of(t.bootstrap, Task)
    if task is None:
        return Ended(done=True, failed="bootstrap", reason="funsearch takes no bootstrap file: give it a task")
    if t.number == 0:
        return (yield from begin(t, task))
    state = msgspec.convert(t.cursor.start.state, State)
    return (yield from (generation(t, task, state) if state.islands else prepare(t, task, state)))


# ------------------------------------------------------------------------------------------- what it needs


def begin(t: Tick, task: Task) -> Part[Ended]:
    """Say what is searched for. Where nothing is missing, try the first version."""
    pieces = given(task)
    asked = missing(task, pieces)
    if asked is None:
        yield say(
            BlockType.USER, f"{task.description.strip()}\n\n{versions([('The first version', task.skeleton)])}"
        )
        return (yield from found(t, task, pieces))
    shown = [(f"The {NAMES[key]} is given", text) for key in NAMES if (text := getattr(pieces, key))]
    if task.skeleton and not pieces.skeleton:
        shown.append(("The first line of the function and its docstring are given", task.skeleton))
    prompt = prompts.text("funsearch_prepare")
    yield say(
        BlockType.USER,
        filled(
            prompt,
            name=task.name,
            description=task.description.strip(),
            given=f"\n{versions(shown)}\n" if shown else "",
            next=ask_for(asked),
        ),
    )
    return Ended(done=False, state=msgspec.to_builtins(State(pieces)))


def prepare(t: Tick, task: Task, state: State) -> Part[Ended]:
    """One message of the model's with a piece that is missing, and what came of it when it was run."""
    said: Reply = yield from reply(t, 0)
    pieces, answers = state.pieces, []
    for source in code_blocks(said.candidate.text)[:BLOCKS]:
        key = piece_of(source, task)
        if len(source) > LONGEST:
            answers.append(f"A code block has more than {LONGEST:,} characters: write it shorter.")
        elif key is None:
            answers.append(
                f"A code block must define test, evaluate or {task.name}: this one defines none of them."
            )
        elif getattr(given(task), key):
            answers.append(f"The {NAMES[key]} is given and can't be changed.")
        else:
            pieces, answer = yield from written(t, task, pieces, key, source)
            answers.append(answer)
    asked = missing(task, pieces)
    if not answers:
        answers.append("There is no code block in your message.")
    if asked is not None:
        answers.append(ask_for(asked))
    yield say(BlockType.TOOL, "\n".join(answers))
    if asked is None:
        return (yield from found(t, task, pieces))
    if t.number >= TURNS:
        reason = f"the model wrote no {NAMES[asked]} that can be used in {TURNS} messages"
        return Ended(done=True, failed="model", reason=reason)
    return Ended(done=False, state=msgspec.to_builtins(State(pieces)))


NAMES = {"tests": "test", "evaluator": "evaluator", "skeleton": "first version"}
"""The pieces in the order in which they are written, as the model is told of them."""


def given(task: Task) -> Pieces:
    """What is there from the beginning. A function that only raises is a signature, and no first version."""
    skeleton = "" if STUB.search(task.skeleton) else task.skeleton
    return Pieces(task.tests, task.evaluator, skeleton)


def missing(task: Task, pieces: Pieces) -> str | None:
    """The next piece to be written. A search with an evaluator of its own may do without a test."""
    if not pieces.tests and not task.evaluator:
        return "tests"
    return next((key for key in ("evaluator", "skeleton") if not getattr(pieces, key)), None)


def ask_for(key: str) -> str:
    return f"Now write the {NAMES[key]}."


def piece_of(source: str, task: Task) -> str | None:
    """Which piece a code block holds."""
    defined = DEFINED.findall(source)
    either = {"tests": "test", "evaluator": "evaluate", "skeleton": task.name}
    return next((key for key, name in either.items() if name in defined), None)


def written(t: Tick, task: Task, before: Pieces, key: str, source: str) -> Part[tuple[Pieces, str]]:
    """The pieces, with a new one if it runs; and what the model is told.

    As long as there is no first version, test and evaluator run on one that only raises.
    """
    pieces = msgspec.structs.replace(before, **{key: source})
    first = pieces.skeleton
    stub = task.skeleton or f"def {task.name}(*args, **kwargs):\n    raise NotImplementedError\n"
    alone = msgspec.structs.replace(Pieces(), **{key: source})
    [verdict] = yield from trials(t, task, pieces if first else alone, [first or stub])
    if first and verdict.success:
        return pieces, f"The {NAMES[key]} runs." + (
            f" Score: {verdict.score:.6g}." if verdict.score is not None else ""
        )
    if not first and (verdict.error or "").startswith(UNWRITTEN):
        return pieces, f"The {NAMES[key]} runs, up to the function that is not written yet."
    if not first and verdict.success and key == "evaluator":
        return pieces, "The evaluator runs, and bears with a function that is not written yet."
    why = verdict.error or "it passes, though the function is not written yet: it must call it"
    hint = ". If the test or the evaluator is wrong, write that one again" if key == "skeleton" else ""
    return before, f"The {NAMES[key]} can't be used: {why}{hint}"


def found(t: Tick, task: Task, pieces: Pieces) -> Part[Ended]:
    """Found the islands with the first version, if it has a score."""
    [verdict] = yield from trials(t, task, pieces, [pieces.skeleton])
    tried = ProgramEvaluated(
        number=0,
        generation=0,
        source=pieces.skeleton,
        score=verdict.score,
        signature=verdict.scores,
        error=verdict.error,
    )
    yield tried
    if verdict.score is None:
        return Ended(done=True, failed="bootstrap", reason=f"the first version has no score: {verdict.error}")
    program = Program(0, 0, verdict.score, verdict.scores, pieces.skeleton)
    yield say(BlockType.TOOL, f"Program 0, the first version: score {verdict.score:.6g}")
    return (yield from ended(task, State(pieces, islands.founded(program, task.islands), 0, 1)))


# ------------------------------------------------------------------------------------------ the generations


def generation(t: Tick, task: Task, state: State) -> Part[Ended]:
    """New programs for each island, one island after another."""
    number, tried, after = state.generation + 1, state.tried, list(state.islands)
    for at, island in enumerate(state.islands):
        shown = islands.parents(island, t.seed("parents"))
        asked: Block = yield say(BlockType.USER, prompt_of(task, shown))
        began, ordinal = t.cursor.now, t.cursor.ordinal
        try:
            answers: list[Candidate] = yield message(t, asked.index, task.candidates)
            sources = [program_in(answer.text, task.name) for answer in answers]
            verdicts = yield from trials(t, task, state.pieces, sources)
        except RolloutError as error:  # what was found until now is returned all the same
            so_far = State(state.pieces, tuple(after), state.generation, tried)
            returned = msgspec.to_builtins(result(task, so_far))
            return Ended(done=True, failed=error.kind, reason=str(error), returned=returned)
        programs = []
        for position, (source, verdict) in enumerate(zip(sources, verdicts, strict=True)):
            yield ProgramEvaluated(
                number=tried + position,
                generation=number,
                island=at,
                parents=tuple(program.number for program in shown),
                source=source,
                score=verdict.score,
                signature=verdict.scores,
                error=verdict.error,
                candidate=(ordinal, position),
            )
            if verdict.score is not None:
                programs.append(Program(tried + position, number, verdict.score, verdict.scores, source))
        chosen = islands.best_of(programs).number - tried if programs else 0
        yield taken(t, answers[chosen], (ordinal, chosen), began)
        after[at] = islands.added(island, programs, islands.ROOM // len(state.islands))
        yield say(BlockType.TOOL, outcome(verdicts, tried, chosen, islands.best_of(after[at])))
        tried += len(answers)
    found = State(state.pieces, tuple(after), number, tried)
    if number % RESET == 0 and number < task.generations:
        found = msgspec.structs.replace(found, islands=islands.reset(after, t.seed("reset")))
    return (yield from ended(task, found))


def ended(task: Task, state: State) -> Part[Ended]:
    """The end of a tick, and of the search where its generations are over or its score is reached."""
    best = best_of(state)
    reached = task.score_to_reach is not None and best.score >= task.score_to_reach
    line = f"{task.name}: generation {state.generation} of {task.generations}"
    yield Note(kind="status", detail=f"{line}, best score {best.score:.6g} (program {best.number})")
    returned = msgspec.to_builtins(result(task, state))
    if reached or state.generation >= task.generations:
        return Ended(done=True, returned=returned)
    # Returned here, too, for where a budget ends the trace.
    return Ended(done=False, state=msgspec.to_builtins(state), returned=returned)


def best_of(state: State) -> Program:
    """Of all islands. It is never lost: an island keeps its best, and the one that has it survives every reset."""
    return islands.best_of([program for island in state.islands for program in island])


def result(task: Task, state: State) -> Result:
    best, pieces = best_of(state), state.pieces
    return Result(
        name=task.name, description=task.description, source=best.source, score=best.score,
        generation=best.generation, tests=pieces.tests, evaluator=pieces.evaluator, program=best.number,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- trials


def trials(t: Tick, task: Task, pieces: Pieces, sources: Sequence[str]) -> Part[list[Verdict]]:
    """What comes of programs, in order. Equal ones are tried once; what can't be tried has an error."""
    verdicts: dict[str, Verdict] = {"": Verdict(False, error="the message holds no code block with the function")}
    for source in sources:
        if len(source) > LONGEST:
            verdicts[source] = Verdict(False, error=f"it has more than {LONGEST:,} characters")
    new = [source for source in dict.fromkeys(sources) if source not in verdicts]
    room = int((t.settings.callback_seconds - STARTING) / task.seconds)
    size = min(max(room, 1), AT_ONCE)
    for first in range(0, len(new), size):
        some = new[first : first + size]
        request = {
            "name": task.name, "programs": some, "tests": pieces.tests, "evaluator": pieces.evaluator,
            "seconds": task.seconds,
        }  # fmt: skip
        executed: Executed = yield t.execute("trial", source=json.dumps(request))
        verdicts |= dict(zip(some, verdicts_of(executed, len(some), scored=bool(pieces.evaluator)), strict=True))
    return [verdicts[source] for source in sources]


def verdicts_of(executed: Executed, count: int, *, scored: bool) -> list[Verdict]:
    """The verdicts of one operation. Where it failed as a whole, none of its programs was tried."""
    if executed.error is not None:
        why = f"it could not be tried: {executed.error.type}: {executed.error.message}"
        return [Verdict(False, error=why)] * count
    try:
        found = msgspec.convert(executed.value, list[Verdict])
        if len(found) != count:
            raise msgspec.ValidationError(f"{len(found)} verdicts on {count} programs")
    except msgspec.ValidationError as error:
        return [Verdict(False, error=f"it could not be tried: {error}")] * count
    unscored = Verdict(False, error="evaluator: it gives no score")
    return [unscored if scored and one.success and one.score is None else one for one in found]


# -------------------------------------------------------------------------------------------------- texts


def prompt_of(task: Task, shown: Sequence[Program]) -> str:
    """What the model reads before it writes a new version."""
    texts = [
        (f"Version {place}, score {program.score:.6g}", program.source) for place, program in enumerate(shown, 1)
    ]
    return filled(
        prompts.text("funsearch"),
        name=task.name,
        description=task.description.strip(),
        versions=versions(texts),
        seconds=f"{task.seconds:g}",
    )


def filled(template: str, **values: str) -> str:
    """A prompt with `{name}`s replaced in one go: what is put in is not looked through again."""
    return re.sub(
        "|".join(rf"\{{{name}\}}" for name in values), lambda match: values[match[0][1:-1]], template
    ).strip()


def versions(texts: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}:\n```python\n{source.strip()}\n```" for title, source in texts)


def outcome(verdicts: Sequence[Verdict], first: int, chosen: int, best: Program) -> str:
    """What became of the programs of a message, as the trace has it."""
    lines = []
    for position, verdict in enumerate(verdicts):
        what = f"score {verdict.score:.6g}" if verdict.score is not None else f"no score: {verdict.error}"
        above = " (the message above)" if position == chosen else ""
        lines.append(f"Program {first + position}{above}: {' '.join(what.split())[:300]}")
    return "\n".join([*lines, f"Best of this island: program {best.number}, score {best.score:.6g}"])


def code_blocks(text: str) -> list[str]:
    """What stands between fences in a message, thoughts left out."""
    return [found.strip() + "\n" for found in FENCE.findall(THOUGHT.sub("", text)) if found.strip()]


def program_in(text: str, name: str) -> str:
    """The program that a message gives: its last code block that defines the function, else the last; "": none."""
    blocks = code_blocks(text)
    return next(
        (block for block in reversed(blocks) if name in DEFINED.findall(block)), blocks[-1] if blocks else ""
    )
