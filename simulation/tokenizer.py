"""The simulation's tokenizer: a fixed vocabulary, reversible, equal in every process.

A common word is one token (with the space before it); other words have a token for every three letters. English and
Python have about 3 characters a token. Text outside the vocabulary is encoded as bytes.
"""

import itertools
import re
import string
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

_BYTES = 256
_CHUNK = 4096
"""Characters of text, or bytes of packed ids, in a chunk. Chunks are memoized, so common prefixes are cheap."""

_SPECIAL = ("<s>", "</s>", "[INST]", "[/INST]", "#startblock type: ", "#endblock")
_COMMON = """
the that this with from have will what when which there their would about could should other into than then
them they were been more some only over such also after before where while because between through under
does each once same both many most must make made like just take time last next first second third right wrong
self return import assert class None True False else elif except raise finally yield lambda global break
continue pass value title name text data result error action evaluation observation orientation expectation
debug backtrack outcome option block trace model agent subagent task schema index timestamp remaining size
board player move game server state center corner opponent square request response json http localhost port
question answer check callback function method string number list dict print open close read write file line
lines code type true false none null start end left hint seconds query tick program python test tests word
words page story reader book letter letters note notes here that's your yours you're does does't have haven't
one two three four five six seven eight nine zero make makes makes see seen shows shown show look find found
"""
_PIECE = re.compile(
    r"</?s>|\[/?INST\]|#startblock type: |#endblock"
    r"| ?[A-Za-z]+"
    r"| ?[0-9]{1,3}|\n {0,32}| {1,32}(?![!-~])| +"
    r"| ?[!-/:-@\[-`{-~]{1,2}"
    r"|.",
    re.DOTALL,
)
_PART = re.compile(r" ?(?:[a-z]{1,3}|[A-Z][a-z]{1,2}|[A-Z]{1,2})")


def _vocabulary() -> dict[str, int]:
    lower, upper, digits, marks = (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation)

    def tuples(characters: str, *lengths: int) -> Iterable[str]:
        return ("".join(some) for length in lengths for some in itertools.product(characters, repeat=length))

    capitalised = (first + rest for first in upper for rest in ("", *tuples(lower, 1, 2)))
    common = [word for word in _COMMON.split() if word.isalpha()]
    letters = [*tuples(lower, 1, 2, 3), *capitalised, *tuples(upper, 2), "YES"]
    letters += [*common, *map(str.capitalize, common)]
    pieces = [
        *_SPECIAL,
        *(space + word for space in ("", " ") for word in letters),
        *(space + mark for space in ("", " ") for mark in [*tuples(digits, 1, 2, 3), *tuples(marks, 1, 2)]),
        *("\n" + " " * count for count in range(33)),
        *(" " * count for count in range(1, 33)),
    ]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces), _BYTES)}


_IDS = _vocabulary()
_TEXTS = [*("" for _ in range(_BYTES)), *_IDS]
_SPELLED = [*(bytes([byte]) for byte in range(_BYTES)), *(text.encode() for text in _IDS)]
SIZE = len(_TEXTS)
"""All ids are less than this."""


@lru_cache(maxsize=65536)
def _encode_piece(piece: str) -> tuple[int, ...]:
    number = _IDS.get(piece)
    if number is not None:
        return (number,)
    parts = _PART.findall(piece)
    if len(parts) > 1 and "".join(parts) == piece:
        return tuple(number for part in parts for number in _encode_piece(part))
    if len(piece) > 1:
        return tuple(number for character in piece for number in _encode_piece(character))
    return tuple(piece.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def _pack_chunk(chunk: str) -> bytes:
    return pack([number for piece in _PIECE.findall(chunk) for number in _encode_piece(piece)])


def chunks(text: str) -> list[str]:
    """`text` in chunks. No token crosses the end of a chunk."""
    return [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]


def packed(text: str) -> bytes:
    """Ids of `text`, packed. Chunks are memoized."""
    return b"".join([_pack_chunk(chunk) for chunk in chunks(text)])


def pack(ids: Sequence[int]) -> bytes:
    """Ids as machine integers of 4 bytes. Raises IndexError for an unknown id."""
    try:
        return array("i", ids).tobytes()
    except OverflowError:
        raise IndexError(next(number for number in ids if not 0 <= number < SIZE)) from None


def unpack(data: bytes) -> list[int]:
    """The ids in the output of `pack`."""
    return memoryview(data).cast("i").tolist()


def encode(text: str) -> list[int]:
    """Ids of `text`."""
    return unpack(packed(text))


def decode(ids: Sequence[int]) -> str:
    """The text of `ids`. Invalid UTF-8 becomes replacement characters. Raises IndexError for an unknown id."""
    return decode_packed(pack(ids))


def decode_packed(data: bytes) -> str:
    """The text of packed ids, see `decode`. Chunks are memoized."""
    parts = [_spell(data[start : start + _CHUNK]) for start in range(0, len(data), _CHUNK)]
    return b"".join(parts).decode("utf-8", "replace")


@lru_cache(maxsize=4096)
def _spell(data: bytes) -> bytes:
    """The bytes for packed ids."""
    ids = unpack(data)
    if min(ids) < 0 or max(ids) >= SIZE:
        raise IndexError(next(number for number in ids if not 0 <= number < SIZE))
    return b"".join([_SPELLED[number] for number in ids])


def token_text(number: int) -> str:
    """The text of one token."""
    return _TEXTS[number] or bytes([number]).decode("utf-8", "replace")


BOS = _IDS["<s>"]
"""The first token of every text prompt, unless the request disables special tokens."""


def single(text: str) -> int:
    """The id of a text that is a single token."""
    return _IDS[text]
