"""Simulates a researcher: lists, searches and reads, sometimes badly, then summarises what it read."""

import random
import re
from typing import TYPE_CHECKING

from simulation.policies.react import acts, call

if TYPE_CHECKING:
    from simulation.policies.dialogue import Conversation

ENOUGH = 6
"""Number of answers after which it may stop."""
AGAIN = 0.06
"""Rate of messages that repeat the previous one. Sometimes this becomes a doom loop."""
_ASKED = re.compile(r"Research task:\n(.*)", re.DOTALL)
_LISTED = re.compile(r"^(\S.*) \(\d+ lines\)$", re.MULTILINE)
_PLACE = re.compile(r"^(\S.*), lines (\d+) to (\d+) \(score", re.MULTILINE)
_HIT = re.compile(r"^trace (\d+), block (\d+)", re.MULTILINE)
_PLAIN = re.compile(
    "about|after|also|and|are|been|but|can|could|did|does|find|for|from|have|how|into|its|more|most|much|not|only|our|"
    "should|some|than|that|the|their|them|then|there|these|they|this|those|was|were|what|when|where|which|while|who|"
    "why|will|with|would|you|your"
)
"""Words that say nothing about the topic of a task."""


def knows(conversation: "Conversation") -> bool:
    """Recognised by its system prompt: one of prompts/research_*.txt."""
    return conversation.system.startswith(("You are a researcher.", "You review literature."))


def write(conversation: "Conversation", seed: int, number: int) -> str:
    """The next message: a thought and calls, or the summary."""
    chance = conversation.chance(seed, number)
    role, last = conversation.messages[-1]
    done = len(conversation.responses)
    if role == "user" and "Write the summary now" in last:
        if chance.random() < 0.1:  # it ignores the request
            return acts(chance, "One more.", call("list_documents")) + "\n" + _summary(conversation)
        return _summary(conversation)
    if done >= ENOUGH and chance.random() < (0.2 if "your context is used" not in last else 0.8):
        return _summary(conversation)
    if conversation.said and chance.random() < AGAIN:
        return conversation.said[-1]
    return acts(chance, *_next(conversation, chance))


def _next(conversation: "Conversation", chance: random.Random) -> tuple[str, ...]:
    """A thought, and the calls that follow from it."""
    topics = _topics(conversation)
    outputs = "\n".join(str(response.get("output", "")) for response in conversation.responses)
    listed, places, hits = _LISTED.findall(outputs), _PLACE.findall(outputs), _HIT.findall(outputs)
    query = " ".join(chance.sample(topics, min(len(topics), chance.randint(1, 3))))
    if not conversation.said:
        return (
            "First I see what there is.",
            call("list_documents"),
            call("search_documents", query=query),
            call("search_corpus", query=query, limit=3),
        )
    ways: list[tuple[str, ...]] = [
        (f"I search for {query}.", call("search_documents", query=query, limit=chance.randint(2, 6))),
        (f"Where does it say {topics[0]}?", call("grep_documents", pattern=rf"(?i)\b{chance.choice(topics)}")),
        ("What have earlier traces done?", call("search_corpus", query=f"+{chance.choice(topics)} {query}", limit=3)),
        ("How did traces end?", call("sql", query="select status, count(*) from traces group by status order by 1")),
    ]
    if places:
        path, first, _ = chance.choice(places)
        ways += [(f"I read {path} closely.", call("read_document", path=path, first_line=int(first), lines=40))] * 2
    if listed:
        path = chance.choice(listed)
        ways.append((f"What is in {path}?", call("read_document", path=path)))
        ways.append(("I read a neighbour.", call("read_document", path=f"{path}.bak")))
    if hits:
        trace, index = chance.choice(hits)
        ways.append(("I look at that trace.", call("read_blocks", trace=int(trace), first=int(index), count=3)))
    way = chance.choice(ways)
    if chance.random() < 0.3:
        _, other = chance.choice([option for option in ways if option != way])[:2]
        return (*way, other)
    return way


def _topics(conversation: "Conversation") -> list[str]:
    """The words of the task that describe its topic."""
    asked = _ASKED.search(conversation.task)
    words = re.findall(r"[a-z][a-z-]{2,}", (asked[1] if asked else conversation.task).lower())
    return list(dict.fromkeys(word for word in words if not _PLAIN.fullmatch(word))) or ["result"]


def _summary(conversation: "Conversation") -> str:
    """The lines of its answers that are about the topic, with their places."""
    outputs = "\n".join(str(response.get("output", "")) for response in conversation.responses)
    places = list(dict.fromkeys(f"{path}:{first}" for path, first, _ in _PLACE.findall(outputs)))[:5]
    topics = _topics(conversation)
    lines = [line.strip() for line in outputs.split("\n") if any(topic in line.lower() for topic in topics)]
    quotes = list(dict.fromkeys(re.sub(r"^\d+: ", "", line)[:160] for line in lines))[:5]
    if conversation.system.startswith("You review literature."):
        rows = [
            f"| {rank} | [{place}] | {re.sub('[|]', '/', quote)} | not given | not given | not given | partly |"
            for rank, (place, quote) in enumerate(zip(places, [*quotes, *[topics[0]] * 5], strict=False), 1)
        ]
        return "\n".join(
            [
                "<think>That is enough for a ranking.</think>",
                "## Recipes",
                "| Rank | Source | Result | Data | Method and hyperparameters | What made it work | Checked |",
                "|---|---|---|---|---|---|---|",
                *(rows or ["| 1 | nothing was found | not given | not given | not given | not given | no |"]),
                "\n## Recommendation",
                "Begin with the first row." if rows else "None of the documents bears on it.",
                "\n## State of the art\nNot told by these documents.",
                "\n## Essential references",
                *(f"- [{place}]" for place in places),
                "\n## Gaps\nThis is written by a simulation, which reads words and not their meaning.",
            ]
        )
    findings = [f"- {quote}" for quote in quotes]
    sources = ", ".join(f"[{place}]" for place in places) or "no document"
    return "\n".join(
        [
            "<think>Nothing new comes up any more.</think>",
            f"About {' '.join(topics[:4])}: {len(quotes)} lines bear on it. Sources: {sources}.",
            *findings,
            "Uncertain: this is written by a simulation, which reads words and not their meaning.",
        ]
    )
