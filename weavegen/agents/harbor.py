"""What surrounds agents in Harbor tasks: the verification after each step of the task, and two agents without a model.

`nop` does nothing and `oracle` runs the task's own solution: they show how a task's verifier judges no work and a
correct solution. Names and meaning are Harbor's.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.agents import tables
from weavegen.agents.program import Part, Tick
from weavegen.kernel import prompts
from weavegen.kernel.harbor import HarborTask
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Ended, Evaluated, Executed, Reward
from weavegen.trace.blocks import BlockType

AGENTS = ("weave", "react", "nop", "oracle")
"""Agents that take Harbor tasks."""
SEVERAL_STEPS = ("react", "nop", "oracle")
"""Those that take tasks with several steps."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task of an agent without a model: the instruction, as the trace's first block."""

    task: str


class Verification(msgspec.Struct, frozen=True):
    """The state of the tick that verifies a step, after the last tick of the agent."""

    because: str
    """The budget that was spent, `returned`, or the kind of the failure that ended the agent's work."""
    returned: Any
    """What the agent returned."""
    step: int
    rewards: tuple[dict[str, float], ...]
    """Rewards of the previous steps."""
    failure: str | None = None
    """The failure that ended the agent's work; None: it did not fail."""


def nop(t: Tick) -> Program:
    """Do nothing."""
    if t.number == 0:
        t.say(BlockType.USER, msgspec.json.decode(t.bootstrap, type=Task).task)
    return Ended(done=True)
    yield  # a program is a generator


def oracle(t: Tick) -> Program:
    """Run the solution of the task's step."""
    if t.number == 0:
        t.say(BlockType.USER, msgspec.json.decode(t.bootstrap, type=Task).task)
    executed: Executed = yield t.execute("solve", source=str(step_of(t.cursor.start.state)))
    t.say(BlockType.TOOL, executed.output or "(the solution printed nothing)")
    return Ended(done=True)


def bootstrap_of(task: HarborTask) -> str:
    """The bootstrap file with which weave begins a task: its instruction, a view of the working folder."""
    text = task.steps[0].instruction.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return prompts.text("harbor_bootstrap").replace("{instruction}", text)


def step_of(state: Any) -> int:
    """The step of the task that a tick with this state works on, from 0."""
    return int(state.get("step", 0)) if isinstance(state, dict) else 0


def verification(start_state: Any, because: str, returned: Any, failure: str | None) -> dict[str, Any]:
    """The state of the tick that verifies the step at which the agent has ended or failed, or spent its budget."""
    earlier = tuple(start_state.get("rewards", ())) if isinstance(start_state, dict) else ()
    state = Verification(because, returned, step_of(start_state), earlier, failure)
    return {"verification": msgspec.to_builtins(state)}


def verification_of(start_state: Any) -> Verification | None:
    """The state of a tick that verifies; None for a tick of the agent."""
    found = start_state.get("verification") if isinstance(start_state, dict) else None
    return None if found is None else msgspec.convert(found, Verification)


def verify(t: Tick, task: HarborTask, state: Verification) -> Part[Ended]:
    """Verify a step, record its rewards, and give the agent the next step or end the trace."""
    checked: Executed = yield t.execute("verify", source=str(state.step))
    t.say(BlockType.OUTCOME, "\n".join(["Outcome:", *tables.evaluation_rows(checked.evaluations)]))
    own = rewards_of(checked.evaluations)
    t.emit(reward_of(checked.evaluations))
    rewards = (*state.rewards, own)
    passed = own and all(own.get(name, 0.0) >= least for name, least in task.steps[state.step].min_reward.items())
    if state.step + 1 < len(task.steps) and state.because == "returned" and passed:
        t.say(BlockType.USER, task.steps[state.step + 1].instruction)
        return Ended(done=False, state={"single": False, "checked": False, "step": state.step + 1, "rewards": rewards})
    returned = state.returned if isinstance(state.returned, dict) else {"returned": state.returned}
    # As in Harbor, steps after a missed minimum do not count. Those without budget count 0: Harbor would have run them.
    total = roll_up(task, rewards, len(task.steps) if passed else len(rewards))
    known, complete = all(rewards), len(rewards) == len(task.steps)
    success = complete and all(value >= 1 for value in total.values()) if known and total else None
    found = {"reward": main_reward(total) if known and total else None, "rewards": total, "success": success}
    errors = {one.title: one.error.message for one in checked.evaluations if one.error is not None}
    failed = None if state.failure is None else state.because
    return Ended(done=True, returned=returned | found | {"evaluations": errors}, failed=failed, reason=state.failure)


def rewards_of(evaluations: Sequence[Evaluated]) -> dict[str, float]:
    """The rewards of a step by name; none if it was not evaluated."""
    return {one.title: float(one.value) for one in evaluations if one.cause is None}


def reward_of(evaluations: Sequence[Evaluated]) -> Reward:
    """The reward of a tick that verifies. Its blocks have no shares, because the model wrote none of them."""
    own = rewards_of(evaluations)
    reward = main_reward(own) if own else None
    return Reward(reward=reward, shares={}, preferences={}, protected=True, not_evaluated=len(evaluations) - len(own))


def main_reward(rewards: dict[str, float]) -> float:
    """One number for all rewards: the reward named "reward", or the mean."""
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)


def roll_up(task: HarborTask, rewards: tuple[dict[str, float], ...], steps: int) -> dict[str, float]:
    """The rewards of `steps` steps, of which those without rewards count 0."""
    if len(task.steps) == 1 or task.reward_of_steps == "final":
        return rewards[-1] if len(rewards) == steps else {"reward": 0.0}
    names = {name for own in rewards for name in own}
    return {name: sum(own.get(name, 0.0) for own in rewards) / steps for name in sorted(names)}
