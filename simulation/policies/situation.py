"""Parses a prompt for the scripted policies, without its timestamps and indices."""

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

_START = "#startblock type: "
_HEADERS = (
    "#index ", "#timestamp ", "#time_remaining ", "#block_size ", "#bm25_query ", "#title ", "#invalid_syntax ",
    "# Starting new tick with block #", "# Current Working Directory: ",
)  # fmt: skip
QUERY = "\n#bm25_query "
"""The end of a prompt that requests a BM25 query."""
_VOLATILE = re.compile(r"0x[0-9a-f]+|\d+\.\d{3,}|\b\d{4}-\d\d-\d\d\S*|\b\d\d:\d\d:\d\d\b")


@dataclass(frozen=True)
class Situation:
    """The end of a prompt: which block is being written, and its text so far."""

    prompt: str
    start: int
    """Offset in the prompt at which the block to write begins."""
    type: str
    """The block's type; empty if the prompt is not a trace."""
    body: str
    """The body so far: a fixed prefix, or the whole candidate if there is a question."""
    question: str | None
    """The yes/no question about the body at the end of the prompt."""

    @cached_property
    def observations(self) -> list[str]:
        """Texts of the observations in the last tick of the context, newest first."""
        newest: list[str] = []
        for type, body in self.blocks_before():
            if type == "observation":
                newest.append(plain(body))
            elif newest:
                break
        return newest

    @cached_property
    def failure(self) -> str | None:
        """The text of the last error after the last observation, or an empty string."""
        for type, body in self.blocks_before():
            if type in ("observation", "task-reminder", "outcome", "bootstrap", "genesis"):
                return None
            if type == "error":
                return plain(body)
        return None

    def blocks_before(self) -> Iterator[tuple[str, str]]:
        """(type, text below the line with the type) of the blocks before this one, newest first; see `plain`."""
        end = self.start
        while (start := self.prompt.rfind("\n" + _START, 0, end)) >= 0:
            header, _, rest = self.prompt[start + 1 : end].partition("\n")
            yield header.removeprefix(_START), rest.partition("\n#endblock")[0]
            end = start

    def chance(self, seed: int, number: int, *relevant: str) -> random.Random:
        """A random generator that depends only on the seed, the candidate number and the relevant text."""
        return random.Random("\x00".join((str(seed), str(number), self.type, self.body, *relevant)))

    def gist(self) -> str:
        """A digest of the last observations without times."""
        text = "\n".join(_VOLATILE.sub("", text) for text in self.observations)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def plain(body: str) -> str:
    """A block's text without header lines, labels and comment marks."""
    skipped = (*_HEADERS, "#q: ", "#tags: ")
    return "\n".join(line.removeprefix("# ") for line in body.split("\n") if not line.startswith(skipped))


def read(prompt: str) -> Situation:
    """The situation at the end of `prompt`."""
    question = None
    last = prompt.rfind("\n") + 1
    if prompt.startswith("#q:", last):
        question = prompt[last + 3 :].strip()
    start = prompt.rfind(_START)
    if start < 0:
        body = prompt.partition("\n#q: ")[0] if question is not None else prompt[-2000:]
        return Situation(prompt, len(prompt), "", body, question)
    if prompt.endswith(_START):  # is the type of the next block requested?
        return Situation(prompt, start, "next-type", "", None)
    type, _, body = prompt[start + len(_START) :].partition("\n")
    if prompt.endswith(QUERY):
        return Situation(prompt, start, "bm25-query", "", None)
    while body.startswith(_HEADERS):
        body = body.partition("\n")[2]
    if question is not None:
        # Calibration examples come first. The candidate may be empty, as for an option.
        body = "" if body.startswith("#q: ") else body.partition("\n#q: ")[0]
    return Situation(prompt, start, type.strip(), body, question)


def asked(situation: Situation) -> Situation:
    """The situation as a question, for a template of a bootstrap that does not end in `#q:`."""
    text = situation.prompt[-4000:]
    return replace(situation, type="", body=text, question=text.rstrip().rpartition("\n")[2])


def stable(text: str, low: float, high: float) -> float:
    """A number between `low` and `high` that depends only on the text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return low + (high - low) * int.from_bytes(digest, "big") / 0xFFFFFFFF
