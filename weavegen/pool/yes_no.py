"""Computes the probability mass of yes and no from the logprobs of one token. Pure: no I/O.

A token counts as yes if it begins with "yes", and as no if it begins with "no", after lower-casing and without
leading characters that are not letters. So " Yesterday" counts as yes, and "not", "now" and "None" count as no.
"""

import math
from collections.abc import Iterable, Mapping

from weavegen.kernel.steps import YesNo

MAX_IDS = 128
"""vLLM's limit on the length of `logprob_token_ids`."""

TOP_TOKENS = 20
"""Likeliest tokens that are listed where exact probabilities are unavailable: the default limit of vLLM and OpenAI."""
FEWER = {TOP_TOKENS: 5, 5: 1}
"""How many to ask for where the server refuses a number."""

_WORDS = {True: ("Yes", "yes", "YES"), False: ("No", "no", "NO")}
_LEADS = ("", " ", "\n", '"', ' "', "'", " '", "(", " (", "*", "**", "_", ":", ".", "\n\n")
_LONGER = ("Not", "not", "None", "none", "Now", "now", "Nope", "nope", "Nothing", "nothing", "Nor", "Note", "Non")


def side(token: str) -> bool | None:
    """Classify a token: True for yes, False for no, None for neither."""
    word = token.lower()
    while word and not word[0].isalpha():
        word = word[1:]
    if word.startswith("yes"):
        return True
    return False if word.startswith("no") else None


def variants() -> list[str]:
    """List spellings of yes and no that may be single tokens, likeliest first. At most `MAX_IDS`."""
    plain = [lead + word for lead in _LEADS for pair in zip(*_WORDS.values(), strict=True) for word in pair]
    return (plain + [lead + word for lead in ("", " ") for word in _LONGER])[:MAX_IDS]


def mass(seen: Iterable[tuple[bool | None, float]]) -> YesNo:
    """Sum the mass of yes and of no from (side, logprob) of distinct tokens.

    A side without tokens gets the mass that the listed tokens leave. If both sides lack tokens, both masses are 0:
    the score is undefined.
    """
    listed: dict[bool | None, list[float]] = {True: [], False: [], None: []}
    for answer, logprob in seen:
        listed[answer].append(math.exp(min(0.0, logprob)))
    yes, no, other = (math.fsum(listed[answer]) for answer in (True, False, None))
    rest = max(0.0, 1.0 - yes - no - other)
    if listed[True] and not listed[False]:
        no = rest
    elif listed[False] and not listed[True]:
        yes = rest
    total = max(1.0, yes + no)  # the sum may slightly exceed 1 by rounding
    return YesNo(yes=yes / total, no=no / total)


def from_top(top: Mapping[str, float]) -> YesNo:
    """Compute the mass from the likeliest tokens of a position. `top`: logprobs by text."""
    return mass((side(token), logprob) for token, logprob in top.items())


def from_ids(top: Mapping[str, float], sides: Mapping[int, bool], sampled: str) -> YesNo | None:
    """Compute the mass from logprobs by `token_id:N`. `sampled`: text of the sampled token, if not in `sides`.

    Returns None if an id of `sides` is missing: then the server did not use `logprob_token_ids`.
    """
    named = {f"token_id:{token}": answer for token, answer in sides.items()}
    if not named.keys() <= top.keys():
        return None
    return mass((named.get(key, side(sampled)), logprob) for key, logprob in top.items())
