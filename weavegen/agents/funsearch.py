"""FunSearch: improves one function over generations of programs that the model writes.

After Romera-Paredes et al. (Nature 625, 2024, doi:10.1038/s41586-023-06924-6): the model reads some of the best
programs so far and writes new ones. An evaluator scores the programs that pass a test; they live on islands
(islands.py). The task gives a first version of the function, an evaluator and perhaps a test. First, the model writes
the pieces that the task lacks. A piece is accepted once it has run in the box.

A tick is one message with pieces, or one generation. In a generation the model answers one message per island
`candidates` times. All answers are evaluated (box/trial.py) and recorded in the table `programs`; the best answer
becomes part of the trace.
"""

import ast
import json
import keyword
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.agents import dialogue, islands
from weavegen.agents.islands import Island, Program
from weavegen.agents.program import Part, Tick
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program as AgentProgram
from weavegen.kernel.steps import Candidate, Ended, Executed, Note, ProgramEvaluated
from weavegen.kernel.template import split_thoughts
from weavegen.linting.truncate import parsed
from weavegen.trace.blocks import BlockType

MAX_PREPARATION_TICKS = 12
"""Messages that the model may write until no piece is missing."""
RESET_EVERY = 3
"""Generations between two resets of the worse half of the islands."""
MAX_PROGRAM_CHARS = 8_000
MAX_PROGRAMS_PER_TRIAL = 16
"""Programs in one `trial` operation of the environment."""
TRIAL_OVERHEAD_SECONDS = 2.0
"""Seconds of a `trial` operation that its programs can't use."""
UNWRITTEN = ("test: NotImplementedError", "test: AssertionError", "evaluator: NotImplementedError")
"""Errors that a valid test or evaluator may raise while the function only raises NotImplementedError."""
MAX_CODE_BLOCKS = 3
"""Code blocks that are read from each message with pieces."""
CODE_BLOCK = re.compile(r"^```[^\n`]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
STUB = re.compile(r"^[ \t]+raise NotImplementedError\b.*\s*\Z", re.MULTILINE)
DEFINITION = re.compile(r"^def +(\w+)", re.MULTILINE)


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function to improve."""

    name: str
    description: str
    """Purpose of the function, for the model."""
    skeleton: str = ""
    """Source of the first version, with signature and docstring. If it is empty, or only raises
    NotImplementedError, the model writes the first version (with this signature)."""
    evaluator: str = ""
    """Source that defines `evaluate(function)`. It returns one number, or one for each instance; higher is better.
    If it is empty, the model writes it, and also the tests if they are empty."""
    tests: str = ""
    """Source that defines `test(function)`, which raises if an answer is wrong. May be empty."""
    score_to_reach: float | None = None
    """The search ends when a program reaches this score."""
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
        for field, most in (("generations", 1_000), ("candidates", 64), ("islands", 16)):
            if not 1 <= getattr(self, field) <= most:
                raise ValueError(f"{field} is {getattr(self, field)}: give 1 to {most:,}")
        if not 0.1 <= self.seconds <= 60:
            raise ValueError(f"seconds is {self.seconds}: give 0.1 to 60")


class Pieces(msgspec.Struct, frozen=True):
    """The sources that a search needs. An empty source is missing."""

    tests: str = ""
    evaluator: str = ""
    skeleton: str = ""


class State(msgspec.Struct, frozen=True):
    """The state that a tick passes to the next tick."""

    pieces: Pieces
    islands: tuple[Island, ...] = ()
    """Empty while pieces are missing."""
    generation: int = 0
    tried: int = 0
    """Programs evaluated so far."""

    @property
    def best(self) -> Program:
        """The best program of all islands. Islands and resets always keep it."""
        return islands.best_of([program for island in self.islands for program in island])


class Verdict(msgspec.Struct, frozen=True):
    """Result of a program's trial, from box/trial.py."""

    success: bool
    """Whether the program runs and passes the test."""
    score: float | None = None
    scores: tuple[float, ...] = ()
    error: str | None = None


class Result(msgspec.Struct, frozen=True):
    """The value that a trace returns: the best program."""

    name: str
    description: str
    source: str
    score: float
    generation: int
    """Generation in which it was written. 0: it is the first version."""
    tests: str
    evaluator: str
    program: int


def funsearch(t: Tick) -> AgentProgram:
    """Prepare the missing pieces, then write one generation per tick."""
    task = msgspec.convert(json.loads(t.bootstrap), Task)
    if t.number == 0:
        return (yield from begin(t, task))
    state = msgspec.convert(t.cursor.start.state, State)
    return (yield from (write_generation(t, task, state) if state.islands else prepare(t, task, state)))


def begin(t: Tick, task: Task) -> Part[Ended]:
    """Record the task. If no piece is missing, evaluate the first version."""
    pieces = given_pieces(task)
    missing = missing_piece(task, pieces)
    description = task.description.strip()
    if missing is None:
        t.say(BlockType.USER, f"{description}\n\n{versions([('The first version', task.skeleton)])}")
        return (yield from start_islands(t, task, pieces))
    shown = [(f"The {PIECES[key]} is given", source) for key in PIECES if (source := getattr(pieces, key))]
    if task.skeleton and not pieces.skeleton:
        shown.append(("The first line of the function and its docstring are given", task.skeleton))
    given = f"\n{versions(shown)}\n" if shown else ""
    about = {"name": task.name, "description": description, "next": f"Now write the {PIECES[missing]}."}
    t.say(BlockType.USER, fill("funsearch_prepare", given=given, **about))
    return dialogue.next_tick(State(pieces))


def prepare(t: Tick, task: Task, state: State) -> Part[Ended]:
    """Have the model write a message with missing pieces, and run each piece."""
    message = yield from dialogue.reply(t, 0)
    pieces, answers = state.pieces, []
    names = {"tests": "test", "evaluator": "evaluate", "skeleton": task.name}
    for source in code_blocks(message.candidate.text)[:MAX_CODE_BLOCKS]:
        functions = DEFINITION.findall(source)
        piece = next((piece for piece, name in names.items() if name in functions), None)
        if len(source) > MAX_PROGRAM_CHARS:
            answers.append(f"A code block has more than {MAX_PROGRAM_CHARS:,} characters: write it shorter.")
        elif piece is None:
            answers.append(f"A code block must define test, evaluate or {task.name}: this one defines none of them.")
        elif getattr(given_pieces(task), piece):
            answers.append(f"The {PIECES[piece]} is given and can't be changed.")
        else:
            pieces, answer = yield from try_piece(t, task, pieces, piece, source)
            answers.append(answer)
    missing = missing_piece(task, pieces)
    if not answers:
        answers.append("There is no code block in your message.")
    if missing is not None:
        answers.append(f"Now write the {PIECES[missing]}.")
    t.say(BlockType.TOOL, "\n".join(answers))
    if missing is None:
        return (yield from start_islands(t, task, pieces))
    if t.number >= MAX_PREPARATION_TICKS:
        reason = f"the model wrote no {PIECES[missing]} that can be used in {MAX_PREPARATION_TICKS} messages"
        return Ended(done=True, failed="model", reason=reason)
    return dialogue.next_tick(State(pieces))


PIECES = {"tests": "test", "evaluator": "evaluator", "skeleton": "first version"}
"""The pieces in the order in which the model writes them, and their names in messages."""


def given_pieces(task: Task) -> Pieces:
    """The pieces of the task. A skeleton that only raises NotImplementedError is not a first version."""
    return Pieces(task.tests, task.evaluator, "" if is_stub(task.skeleton, task.name) else task.skeleton)


def is_stub(source: str, name: str) -> bool:
    """Whether the function, after its docstring, only raises NotImplementedError."""
    if (tree := parsed(source)) is None:
        return STUB.search(source) is not None
    functions = (node for node in reversed(tree.body) if isinstance(node, ast.FunctionDef) and node.name == name)
    function = next(functions, None)
    match function and function.body[ast.get_docstring(function) is not None :]:
        case [ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError")))]:
            return True
    return False


def missing_piece(task: Task, pieces: Pieces) -> str | None:
    """The next piece that the model must write, or None. A task with an evaluator needs no test."""
    if not pieces.tests and not task.evaluator:
        return "tests"
    return next((piece for piece in ("evaluator", "skeleton") if not getattr(pieces, piece)), None)


def try_piece(t: Tick, task: Task, before: Pieces, piece: str, source: str) -> Part[tuple[Pieces, str]]:
    """Run a new piece. Returns the pieces, with the new piece if it works, and the answer for the model.

    Without a first version, test and evaluator run on a function that only raises NotImplementedError.
    """
    pieces = msgspec.structs.replace(before, **{piece: source})
    first = pieces.skeleton
    stub = task.skeleton or f"def {task.name}(*args, **kwargs):\n    raise NotImplementedError\n"
    alone = msgspec.structs.replace(Pieces(), **{piece: source})
    [verdict] = yield from run_trials(t, task, pieces if first else alone, [first or stub])
    if first and verdict.success:
        score = f" Score: {verdict.score:.6g}." if verdict.score is not None else ""
        return pieces, f"The {PIECES[piece]} runs.{score}"
    if not first and (verdict.error or "").startswith(UNWRITTEN):
        return pieces, f"The {PIECES[piece]} runs, up to the function that is not written yet."
    if not first and verdict.success and piece == "evaluator":
        return pieces, "The evaluator runs, and bears with a function that is not written yet."
    reason = verdict.error or "it passes, though the function is not written yet: it must call it"
    hint = ". If the test or the evaluator is wrong, write that one again" if piece == "skeleton" else ""
    return before, f"The {PIECES[piece]} can't be used: {reason}{hint}"


def start_islands(t: Tick, task: Task, pieces: Pieces) -> Part[Ended]:
    """Evaluate the first version, and put it on every island."""
    [verdict] = yield from run_trials(t, task, pieces, [pieces.skeleton])
    if (program := record(t, 0, 0, pieces.skeleton, verdict)) is None:
        return Ended(done=True, failed="bootstrap", reason=f"the first version has no score: {verdict.error}")
    t.say(BlockType.TOOL, f"Program 0, the first version: score {program.score:.6g}")
    return end_generation(t, task, State(pieces, ((program,),) * task.islands, 0, 1))


def write_generation(t: Tick, task: Task, state: State) -> Part[Ended]:
    """Have the model write new programs for each island, one island after another."""
    generation, tried, after = state.generation + 1, state.tried, list(state.islands)
    for place, island in enumerate(state.islands):
        parents = islands.parents(island, t.seed("parents"))
        request = t.say(BlockType.USER, prompt_of(task, parents))
        began, ordinal = t.cursor.now, t.cursor.ordinal
        try:
            candidates: list[Candidate] = yield dialogue.sample_messages(t, request.index, task.candidates)
            sources = [program_in(candidate.text, task.name) for candidate in candidates]
            verdicts = yield from run_trials(t, task, state.pieces, sources)
        except RolloutError as error:  # the trace still returns the best program so far
            return dialogue.end_trace(result(task, State(state.pieces, tuple(after), state.generation, tried)), error)
        programs: list[Program] = []
        for position, (source, verdict) in enumerate(zip(sources, verdicts, strict=True)):
            numbers = tuple(parent.number for parent in parents)
            made = {"island": place, "parents": numbers, "candidate": (ordinal, position)}
            program = record(t, tried + position, generation, source, verdict, **made)
            programs += [] if program is None else [program]
        chosen = islands.best_of(programs).number - tried if programs else 0
        t.append(dialogue.message_of(t, candidates[chosen], (ordinal, chosen), began))
        after[place] = islands.added(island, programs, islands.MAX_CHARS // len(state.islands))
        t.say(BlockType.TOOL, outcome(verdicts, tried, chosen, islands.best_of(after[place])))
        tried += len(candidates)
    if generation % RESET_EVERY == 0 and generation < task.generations:
        after = list(islands.reset(after, t.seed("reset")))
    return end_generation(t, task, State(state.pieces, tuple(after), generation, tried))


def record(t: Tick, number: int, generation: int, source: str, verdict: Verdict, **made: Any) -> Program | None:
    """Record a program in the table `programs`. `made`: how the model wrote it. Returns None if it has no score."""
    made |= {"score": verdict.score, "signature": verdict.scores, "error": verdict.error}
    t.emit(ProgramEvaluated(number=number, generation=generation, source=source, **made))
    return None if verdict.score is None else Program(number, generation, verdict.score, verdict.scores, source)


def end_generation(t: Tick, task: Task, state: State) -> Ended:
    """End the tick. After the last generation, or when `score_to_reach` is reached, also end the search."""
    line = f"{task.name}: generation {state.generation} of {task.generations}"
    best = f"best score {state.best.score:.6g} (program {state.best.number})"
    t.emit(Note(kind="status", detail=f"{line}, {best}"))
    reached = task.score_to_reach is not None and state.best.score >= task.score_to_reach
    end = dialogue.end_trace(result(task, state))
    if reached or state.generation >= task.generations:
        return end
    # Every tick returns the result, because a budget may end the trace after this tick.
    return msgspec.structs.replace(dialogue.next_tick(state), returned=end.returned)


def result(task: Task, state: State) -> Result:
    best, pieces = state.best, state.pieces
    return Result(
        name=task.name, description=task.description, source=best.source, score=best.score,
        generation=best.generation, tests=pieces.tests, evaluator=pieces.evaluator, program=best.number,
    )  # fmt: skip


def run_trials(t: Tick, task: Task, pieces: Pieces, sources: Sequence[str]) -> Part[list[Verdict]]:
    """The verdicts on programs, in order. Equal programs run once."""
    verdicts: dict[str, Verdict] = {"": Verdict(False, error="the message holds no code block with the function")}
    too_long = Verdict(False, error=f"it has more than {MAX_PROGRAM_CHARS:,} characters")
    verdicts |= {source: too_long for source in sources if len(source) > MAX_PROGRAM_CHARS}
    new = [source for source in dict.fromkeys(sources) if source not in verdicts]
    fitting = int((t.settings.callback_seconds - TRIAL_OVERHEAD_SECONDS) / task.seconds)
    size = min(max(fitting, 1), MAX_PROGRAMS_PER_TRIAL)
    for first in range(0, len(new), size):
        programs = new[first : first + size]
        request = {
            "name": task.name, "programs": programs, "tests": pieces.tests, "evaluator": pieces.evaluator,
            "seconds": task.seconds,
        }  # fmt: skip
        executed: Executed = yield t.execute("trial", source=json.dumps(request))
        trial = verdicts_of(executed, len(programs), scored=bool(pieces.evaluator))
        verdicts |= dict(zip(programs, trial, strict=True))
    return [verdicts[source] for source in sources]


def verdicts_of(executed: Executed, count: int, *, scored: bool) -> list[Verdict]:
    """The verdicts of one `trial` operation. If it failed as a whole, no program has a score."""
    if executed.error is not None:
        reason = f"it could not be tried: {executed.error.type}: {executed.error.message}"
        return [Verdict(False, error=reason)] * count
    try:
        verdicts = msgspec.convert(executed.value, list[Verdict])
        if len(verdicts) != count:
            raise msgspec.ValidationError(f"{len(verdicts)} verdicts on {count} programs")
    except msgspec.ValidationError as error:
        return [Verdict(False, error=f"it could not be tried: {error}")] * count
    unscored = Verdict(False, error="evaluator: it gives no score")
    return [unscored if scored and v.success and v.score is None else v for v in verdicts]


def prompt_of(task: Task, parents: Sequence[Program]) -> str:
    """The request for a new version."""
    shown = [(f"Version {n}, score {parent.score:.6g}", parent.source) for n, parent in enumerate(parents, 1)]
    about = {"name": task.name, "description": task.description.strip(), "seconds": f"{task.seconds:g}"}
    return fill("funsearch", versions=versions(shown), **about)


def fill(prompt: str, **values: str) -> str:
    """Replace each `{name}` of a prompt in one pass, so that a `{name}` inside a value stays."""
    names = "|".join(rf"\{{{name}\}}" for name in values)
    return re.sub(names, lambda match: values[match[0][1:-1]], prompts.text(prompt)).strip()


def versions(sources: Sequence[tuple[str, str]]) -> str:
    """(title, source) pairs as code blocks."""
    return "\n\n".join(f"{title}:\n```python\n{source.strip()}\n```" for title, source in sources)


def outcome(verdicts: Sequence[Verdict], first: int, chosen: int, best: Program) -> str:
    """The text of one message's results in the trace. `first`: number of the first program."""
    lines = []
    for position, verdict in enumerate(verdicts):
        text = f"score {verdict.score:.6g}" if verdict.score is not None else f"no score: {verdict.error}"
        above = " (the message above)" if position == chosen else ""
        lines.append(f"Program {first + position}{above}: {' '.join(text.split())[:300]}")
    return "\n".join([*lines, f"Best of this island: program {best.number}, score {best.score:.6g}"])


def code_blocks(text: str) -> list[str]:
    """The fenced code blocks of a message, without those inside <think>."""
    return [code.strip() + "\n" for code in CODE_BLOCK.findall(split_thoughts(text)[0]) if code.strip()]


def program_in(text: str, name: str) -> str:
    """The last code block that defines the function; else the last code block; else an empty text."""
    blocks = code_blocks(text)
    defining = [block for block in blocks if name in DEFINITION.findall(block)]
    return (defining or blocks or [""])[-1]
