"""The policy for bootstraps/conversation.py: answers messages, waits for answers, and says goodbye."""

import json
import random
import re
from dataclasses import dataclass

from simulation.policies import generic, judge
from simulation.policies.draft import Callback
from simulation.policies.situation import Situation

log_odds = judge.log_odds

_BOOTSTRAP = "def wait_for_answer(after, seconds=20):"
_SAID = re.compile(r"^\[(\d+), [^]\n]*\] ([^:\n]+): (.*)$", re.MULTILINE)
_STATE = re.compile(r"Messages of the person: (\d+), of (\d+) that I answer at most\. (.*)")
_OPENINGS = ("I had not thought of it like that.", "That is a good place to begin.", "Tell me more about that.")
_QUESTIONS = (
    "What made you think of it?",
    "Which part of it would you keep if you could keep only one?",
    "How would somebody notice that it had worked?",
)
_VIEW = """def view_last_word(self):
    said = talk().get_messages(limit=1)
    return said[-1]["content"] if said else "nothing has been said"

if "Last word" in [view["title"] for view in self.observation_views]:
    self.remove_observation_view("Last word")
elif len(self.observation_views) < 8:
    self.add_observation_view("Last word", view_last_word)
"""


@dataclass(frozen=True)
class Channel:
    """The conversation as last observed."""

    newest: int
    """Id of the newest message."""
    words: str
    """The person's last message; empty if there is none."""
    waits: bool
    """Whether the person waits for an answer."""
    left: int
    """Messages that may still be answered."""
    goodbye: bool

    @property
    def ends(self) -> str | None:
        """Why the conversation should end now."""
        return "goodbye" if self.goodbye else "limit" if self.waits and self.left <= 0 else None


def knows(situation: Situation) -> bool:
    """Whether the trace's bootstrap is a conversation."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def observed(situation: Situation) -> Channel | None:
    """The conversation as the newest observations show it.

    A message can arrive between two of them. So the channel alone tells whose turn it is, because it has the message
    that is answered.
    """
    texts = "\n".join(situation.observations)
    state, said = _STATE.search(texts), _SAID.findall(texts)
    if state is None:
        return None
    own = [name.partition(",")[0] == "me" for _, name, _ in said]
    theirs = [text for (_, _, text), mine in zip(said, own, strict=True) if not mine]
    return Channel(
        newest=max((int(number) for number, _, _ in said), default=0),
        words=theirs[-1] if theirs else "",
        waits=own[-1:] == [False],
        left=int(state[2]) - int(state[1]) + 1,
        goodbye="has said goodbye" in state[3],
    )


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = observed(situation)
    if now is None:
        return generic.write(situation, seed, number)
    chance = situation.chance(seed, number, repr(now), situation.failure or "")
    return generic.of_type(
        situation,
        seed,
        number,
        chance,
        action=lambda: _action(now, chance),
        evaluation=lambda: _evaluation(now),
        view=_VIEW,
        prose_pools=lambda: _PROSE[situation.type](now),
    )


def _action(now: Channel, chance: random.Random) -> Callback:
    if now.ends is not None:
        farewell = chance.choice(["Goodbye, and thank you for this.", "I enjoyed this. Goodbye!"])
        return Callback(
            "action",
            "take_leave",
            (
                f"number = talk().send_message({json.dumps(farewell)})",
                'assert number > 0, "Has the farewell got an id?"',
                f'self.return_to_caller({{"messages": len(heard()), "ended_by": "{now.ends}"}})',
                'return f"took leave with message {number}"',
            ),
            "Say goodbye and report to the caller",
        )
    if not now.waits:
        return Callback(
            "action",
            "wait_for_answer",
            (
                f"new = wait_for_answer({now.newest}, seconds=10)",
                'assert isinstance(new, list), "Could the channel be read?"',
                'return [said["content"] for said in new]',
            ),
            "Wait for what the person says",
        )
    quoted = json.dumps(f'{chance.choice(_OPENINGS)} You said "{now.words[:60]}". {chance.choice(_QUESTIONS)}')
    lines = [
        f"number = talk().reply_to_message({now.newest}, {quoted})",
        f'assert number > {now.newest}, "Is the reply newer than what it answers?"',
        'return f"replied with message {number}"',
    ]
    if chance.random() < 0.3:
        lines.insert(0, f'talk().react_to_message({now.newest}, "\N{THUMBS UP SIGN}")')
    return Callback("action", f"reply_to_message_{now.newest}", tuple(lines), "Reply to what the person said")


def _evaluation(now: Channel) -> Callback:
    if now.ends is not None:
        return Callback("evaluation", "has_returned", ("return self.completed",), "Has the caller been told?")
    if not now.waits:
        line = f"return len(wait_for_answer({now.newest}, seconds=0)) > 0"
        return Callback("evaluation", "person_answered", (line,), "Has the person answered?")
    lines = (f"said = talk().get_messages(after={now.newest})", 'return any(one["own"] for one in said)')
    return Callback("evaluation", "reply_is_there", lines, "Is my reply in the channel?")


# ----------------------------------------------------------------------------------------------- prose

Pools = tuple[tuple[str, ...], ...]


def _orientation(now: Channel) -> Pools:
    if now.ends == "goodbye":
        do = ("The person has said goodbye, and so should I.", "This is over: a friendly farewell is left.")
    elif now.ends:
        do = ("We have talked as long as was agreed.", "This was the last message that I was to answer.")
    elif now.waits:
        do = (f"Message {now.newest} waits for an answer.", f"The last word, message {now.newest}, is not mine.")
    else:
        do = ("It is not my turn: I have said what I had to say.", "The channel shows my own message last.")
    return (
        do,
        ("The crux is to answer what was said and nothing else.", "What counts is what the person needs next."),
        ("One short message is enough.", "The next step is a single call on the channel."),
    )


def _expectation(now: Channel) -> Pools:
    if now.waits:
        sign = ("My message should be the newest in the channel.", "The channel should end with what I wrote.")
    else:
        sign = ("If the person wrote, a new message is in the channel.", "There is an answer, or nothing new.")
    return (sign, ("Reading the channel again shows it.", "get_messages() is where this can be checked."))


def _debug(now: Channel) -> Pools:
    return (
        (" I called something that the channel does not have.", " the call did not fit what the channel offers."),
        ("The next attempt uses talk() and nothing that I made up.", "I do it as the first tick did."),
    )


def _backtrack(now: Channel) -> Pools:
    return (
        (" say something that nobody asked for.", " leave the person without an answer."),
        ("I take it back: nothing has been sent.", "It was not carried out, so I can still do better."),
    )


_PROSE = {"orientation": _orientation, "expectation": _expectation, "debug": _debug, "backtrack": _backtrack}
