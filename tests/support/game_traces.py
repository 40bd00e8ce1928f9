"""Small traces of a game, block by block, with labels."""

from tests.support.rendering import render_trace
from weavegen.kernel import prompts
from weavegen.trace.blocks import Block, BlockType, Label

ORIENT = prompts.questions(BlockType.ORIENTATION)[0]
SIMPLE = prompts.questions(BlockType.ACTION)[0]


def block(type: BlockType, index: int, body: str, **more: object) -> Block:
    written = {BlockType.ORIENTATION, BlockType.ACTION}
    values = {"subagent": "main", "timestamp": 1795328753.8, "time_remaining": 21583.4} | more
    size = 768 if type in written else None
    return Block(type=type, body=body, index=index, block_size=size, **values)  # type: ignore[arg-type]


def action(index: int, cell: int, *, ran: bool | None = True, yes: float = 0.9, compiles: bool = True) -> Block:
    name = f"action_take_cell_{cell}"
    body = f'def {name}(self):\n    return move({cell})\n\nself.add_action("Take", {name})'
    label = Label(SIMPLE, yes >= 0.5, max(yes, 1 - yes))
    return block(BlockType.ACTION, index, body, ran=ran, label=label, compiles=compiles)


def tick(first: int, cell: int, **how: object) -> list[Block]:
    return [
        block(BlockType.TASK_REMINDER, first, "Problem map:\n- main: in progress"),
        block(BlockType.OBSERVATION, first + 1, f"0 | 1 | {cell}", title="Board"),
        block(
            BlockType.ORIENTATION,
            first + 2,
            f'"""\nI take cell {cell}.\n"""',
            bm25_query="+cell take",
            label=Label(ORIENT, True, 0.97),
            tick_start=first,
            working_directory="/app",
        ),
        action(first + 3, cell, **how),  # type: ignore[arg-type]
        block(BlockType.OUTCOME, first + 4, f"Outcome:\naction | Take | {cell}"),
    ]


def trace(ticks: int = 12) -> str:
    start = [block(BlockType.GENESIS, 0, "# genesis"), block(BlockType.BOOTSTRAP, 1, "# bootstrap", ran=True)]
    return render_trace(start + [one for number in range(ticks) for one in tick(2 + 5 * number, number % 9)])
