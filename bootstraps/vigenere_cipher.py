"""Vigenère's cipher: makes the ciphertext of the bootstrap of that name, and knows the plaintext by its hash only.

Every letter is moved on in the alphabet by a letter of the key (A by 0 to Z by 25); the key is repeated. Who can
read this file can read the default texts: give `text` and `key` as parameters where that matters.
"""

import hashlib
import random
from collections.abc import Callable
from itertools import cycle
from typing import Any

LEAST_LETTERS = 300
"""Of the plaintext, so that each letter of a key of `KEY_LETTERS` moves enough of them to count."""
KEY_LETTERS = (2, 8)
"""Least and most."""

KEYS = ("AMBER", "CLOUD", "LAMP", "MOSS", "RIVER")
TEXTS = (
    "The keeper of the harbour light wrote down every ship that passed. Some came in with timber and went out "
    "with salt, others only waited for the tide. In the autumn the fog was so thick that he counted them by the "
    "sound of their bells. When he grew old he gave the book to his daughter, who added the weather and the "
    "price of fish, and after forty years the merchants came to her before they set their sails, because nobody "
    "else could tell them what the coming month would bring.",
    "Bread asks for little and forgives much. Take flour, water and salt, and some of the dough that was left "
    "from last week. Mix them in the evening, cover the bowl with a cloth, and let it stand near the stove "
    "until morning. By then it will have doubled. Fold it three times, shape it on a floured board, and give it "
    "another hour of rest. Bake it hot at first, so that the crust can rise, and then more gently. It is done "
    "when the bottom sounds hollow under your knuckles.",
    "The path begins behind the last house of the village and climbs through a wood of beech and pine. After an "
    "hour it leaves the trees and follows a stream across stony meadows where sheep are kept in summer. Cross "
    "the stream at the second bridge, for the first was carried away by the flood. From there the way is marked "
    "with piles of stones. Do not go on when clouds hide the saddle, but turn back and wait for another day, "
    "since the far side falls steeply to the lake.",
)


def letters(text: str) -> str:
    """The letters A to Z of a text, as capitals; everything else is dropped."""
    return "".join(letter for letter in text.upper() if "A" <= letter <= "Z")


def encrypt(text: str, key: str) -> str:
    """The ciphertext, in capitals without spaces. `key` is in capitals."""
    return "".join(map(_move, letters(text), cycle(key)))


def _move(letter: str, by: str) -> str:
    return chr((ord(letter) + ord(by) - 2 * ord("A")) % 26 + ord("A"))


def pose(params: dict[str, Any]) -> tuple[str, Callable[[str], bool]]:
    """A ciphertext, and a function that tells whether a text is its plaintext.

    Takes `text` and `key` out of the parameters, and draws from the defaults what is not given. Raises ValueError.
    """
    text, key = params.pop("text", random.choice(TEXTS)), params.pop("key", random.choice(KEYS))
    least, most = KEY_LETTERS
    if not isinstance(key, str) or len(key) != len(letters(key)) or not least <= len(key) <= most:
        raise ValueError(f"key is {key!r}: give {least} to {most} letters from A to Z")
    if not isinstance(text, str) or len(letters(text)) < LEAST_LETTERS:
        raise ValueError(f"text is too short: give English with {LEAST_LETTERS} letters or more")
    digest = _digest(text)
    return encrypt(text, letters(key)), lambda found: _digest(found) == digest


def _digest(text: str) -> str:
    return hashlib.sha256(letters(text).encode()).hexdigest()
