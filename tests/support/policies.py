"""Prompts for the simulation's policies, and the candidates that the policies write for them."""

import math
from collections.abc import Sequence
from typing import Any

from simulation import complete, policies
from simulation.policies import judge
from simulation.policies.situation import read
from tests.support.templates import MISTRAL
from weavegen.kernel import context, prompts
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import Template
from weavegen.linting.lint import lint
from weavegen.trace.blocks import PROSE, Block, BlockType
from weavegen.trace.render import render_block, render_header

BOOTSTRAP = "from bootstraps.tictactoe_server import start\n"


def view(marks: str, turn: str) -> str:
    """The board as bootstraps/tictactoe.py shows it."""
    cells = [f"{number} {mark}" for number, mark in enumerate(marks)]
    rows = [" | ".join(cells[start : start + 3]) for start in (0, 3, 6)]
    return "\n----+-----+----\n".join(rows) + f"\nI play X against basic. {turn}"


OPEN = view("----X-O--", "It is my turn.")
TO_WIN = view("XX-OO----", "It is my turn.")
WON = view("XXXOO----", "The game is over: won.")
PREFIX = {"action": "def action_", "evaluation": "def eval_", "observation-inference": ""}
WRITTEN = (*sorted(PROSE), BlockType.ACTION, BlockType.EVALUATION, BlockType.OBSERVATION_INFERENCE)


def block(type: BlockType, body: str, index: int = 2, began: float = 100.5, **fields: Any) -> Block:
    return Block(type=type, body=body, index=index, timestamp=began, time_remaining=began / 2, **fields)


def compose(
    prompt: Prompt,
    pinned: Sequence[str],
    tail: Sequence[str],
    recalled: Sequence[tuple[BlockType, str]],
    template: Template = MISTRAL,
) -> str:
    """The text of a prompt, up to the body of the block to write, without the body's fixed prefix.

    `pinned` and `tail` are rendered blocks; `recalled` are retrieved ones, best first.
    """
    asked = context.asked(prompt, template)
    return "".join([template.block_open, *pinned, *tail, context.retrieved(recalled), asked])


def base(type: BlockType, shown: str, *, bootstrap: str = BOOTSTRAP, index: int = 3, began: float = 99.5) -> str:
    """A prompt up to the body of the block to come."""
    pinned = [render_block(block(BlockType.BOOTSTRAP, bootstrap, 1, began))]
    tail = [render_block(block(BlockType.OBSERVATION, shown, index - 1, began, title="Board"))]
    header = render_header(block(type, "", index, began, block_size=768))
    return compose(Prompt(type=type, window=(2, 3), header=header), pinned, tail, [])


def drafts(type: BlockType, shown: str, n: int, seed: int = 1, **options: Any) -> list[str]:
    """Bodies of `n` candidates as the server would return them, with the prompt's prefix."""
    prefix = PREFIX.get(type, '"""')
    situation = read(base(type, shown, **options) + prefix)
    return [prefix + complete.cut(policies.write(situation, seed, i), context.STOP, 768)[0] for i in range(n)]


def odds(type: BlockType, shown: str, body: str, **options: Any) -> float:
    """Log odds that the evaluator gives a candidate."""
    question = prompts.questions(type)[0]
    yes = policies.answer(read(base(type, shown, **options) + context.question_suffix(body, question)))
    return math.log(yes / (1 - yes))


def is_fine(type: BlockType, body: str) -> bool:
    verdict = lint(type, body)
    return verdict.compiles and verdict.penalties.total() == 0 and judge.faults(type, body) == 0
