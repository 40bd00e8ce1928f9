"""Simulates a model with tools: plays tic-tac-toe through the `python` tool, does small tasks, makes errors."""

import ast
import json
import random
import re
from typing import TYPE_CHECKING, Any

from simulation.policies import board as game

if TYPE_CHECKING:
    from simulation.policies.dialogue import Conversation

FLAWS = {"malformed": 0.04, "unclosed": 0.02, "unknown": 0.03, "arguments": 0.03}
"""Rates per message with calls."""
CARELESS = 0.15
"""Rate of moves on a random free cell instead of the best cell."""
TAKEN = 0.04
"""Rate of moves on a taken cell."""
_STATE = re.compile(r"\{'board':.*\}")


def knows(conversation: "Conversation") -> bool:
    """True: it answers every conversation that no other policy knows."""
    return True


def write(conversation: "Conversation", seed: int, number: int) -> str:
    """The next message: a thought and calls, or the final answer."""
    chance = conversation.chance(seed, number)
    if "bootstraps.tictactoe_server" in conversation.task:
        return _play(conversation, chance)
    return _chore(conversation, chance)


def call(name: str, **arguments: Any) -> str:
    """A well-formed tool call."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def acts(chance: random.Random, thought: str, *calls: str) -> str:
    """A message with calls. Sometimes its last call is malformed."""
    flaw = chance.choices([None, *FLAWS], [1 - sum(FLAWS.values()), *FLAWS.values()])[0]
    *others, last = calls
    if flaw == "malformed":
        last = last.replace('"arguments": {', '"arguments": ', 1)
    elif flaw == "unclosed":
        last = last.removesuffix("</tool_call>")
    elif flaw == "unknown":
        last = re.sub(r'"name": "\w+"', '"name": "search_web"', last, count=1)
    elif flaw == "arguments":
        last = last.replace('"arguments": {', '"arguments": {"verbose": 1, ', 1)
    return "\n".join([f"<think>{thought}</think>", *others, last])


def _state(conversation: "Conversation") -> dict[str, Any] | None:
    """The game as the newest answer shows it."""
    for response in reversed(conversation.responses):
        match = _STATE.search(str(response.get("output", "")))
        if match:
            try:
                value = ast.literal_eval(match[0])
            except (ValueError, SyntaxError):
                continue
            return value if isinstance(value, dict) else None
    return None


def _play(conversation: "Conversation", chance: random.Random) -> str:
    state = _state(conversation)
    if state is None:
        return acts(chance, "First I look at the board.", call("python", code="get_state()"))
    board, me = "".join(state["board"]), state["you"]
    if state["over"] or " " not in board:
        return f"<think>The game is over.</think>\nThe first game is {state['results'][0]}: I played {me}."
    roll = chance.random()
    free = [cell for cell, mark in enumerate(board) if mark == " "]
    if roll < TAKEN and len(free) < 9:
        cell = chance.choice([cell for cell in range(9) if cell not in free])
    elif roll < TAKEN + CARELESS:
        cell = chance.choice(free)
    else:
        cell = game.ranked(board, me)[0][1]
    return acts(
        chance, f"I play {me}. The free cells are {free}. I take cell {cell}.", call("python", code=f"move({cell})")
    )


def _chore(conversation: "Conversation", chance: random.Random) -> str:
    done = len(conversation.responses)
    if done >= 2 and chance.random() < done / 4:
        last = str(conversation.responses[-1].get("output", "nothing")).strip()[:200]
        return f"<think>That is what was asked for.</think>\nIt is done. The last tool said: {last}"
    word = chance.choice(("alpha", "beta", "gamma", "delta"))
    steps = (
        ("What is there?", call("terminal", command="pwd; ls")),
        (f"I write {word} down.", call("write_file", path=f"{word}.txt", content=f"{word}\n" * chance.randint(1, 9))),
        ("How many lines?", call("terminal", command=f"cat *.txt 2>/dev/null | wc -l; echo {word}")),
        ("I compute it.", call("python", code=f"numbers = list(range({chance.randint(2, 30)}))\nsum(numbers)")),
        ("I read it again.", call("read_file", path=f"{word}.txt")),
    )
    thought, action = steps[(done + chance.randint(0, 1)) % len(steps)]
    if chance.random() < 0.2:
        return acts(chance, f"{thought} And what time is it?", action, call("terminal", command="date +%Y"))
    return acts(chance, thought, action)
