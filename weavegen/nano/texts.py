"""Text and tokens, by the tokenizer.json beside a model, and what of a long prompt the model is shown."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from weavegen.errors import UsageError
from weavegen.nano.llama import Ids

BORDER = "#startblock type: "
"""A token of this text begins a block, if the tokenizer has one: long prompts are cut there."""

END = "</s>"
"""The token that ends a text, if the tokenizer has one."""


class Texts:
    """A byte-level tokenizer: tokens are bytes, so that any sequence of them has a text."""

    def __init__(self, folder: Path) -> None:
        """Reads tokenizer.json. Raises UsageError where that can't be, or where it is not byte-level."""
        file = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001 (what the library raises has no type of its own)
            raise UsageError(f"{file}: {error}: give a folder with a model and its tokenizer") from None
        self.digest = hashlib.sha256(file.read_bytes()).hexdigest()
        """Equal for equal tokenizers."""
        spelled = _bytes_by_character()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}
        self._bytes: list[bytes] = []
        for number in range(self._tokenizer.get_vocab_size()):
            token = self._tokenizer.id_to_token(number) or ""
            if number in added:
                self._bytes.append(added[number].content.encode())
            else:
                try:
                    self._bytes.append(bytes(spelled[character] for character in token))
                except KeyError:
                    raise UsageError(
                        f"{file}: {token!r} is no byte-level token: serve this model by vLLM"
                    ) from None
        self.border: int | None = self._tokenizer.token_to_id(BORDER)
        self.end: int | None = self._tokenizer.token_to_id(END)

    @property
    def size(self) -> int:
        """Ids are below this."""
        return len(self._bytes)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text; with `special` as the tokenizer marks a whole text, mostly with a token before it."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def spell(self, token: int) -> bytes:
        """What a token adds to a text: nothing, if it is a special one."""
        return b"" if token in self._special else self._bytes[token]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special ones as they are written, with replacement characters for what is no UTF-8.

        Raises IndexError with a wrong id.
        """
        if strange := [token for token in ids if not 0 <= token < self.size]:
            raise IndexError(strange[0])
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "replace")


def cut(ids: Sequence[int], room: int, border: int | None) -> Ids:
    """What the model is shown of a prompt: all of it, or its first token and as much of its end as fits `room`.

    A prompt that is too long loses its beginning up to a border, so that its last blocks are whole; and more of
    it than it must, so that the next prompts, which extend it, are cut at the same place: the cache knows them.
    """
    whole = np.asarray(ids, np.int64)
    spare = len(whole) - room
    if spare <= 0:
        return whole
    step = max(1, room // 2)
    least = 1 + -(-spare // step) * step  # a multiple, so it moves seldom; the 1: the first token stays
    borders = np.flatnonzero(whole == border) if border is not None else np.empty(0, np.int64)
    after = borders[borders >= least]
    if len(after) == 0 or len(whole) - after[0] < room // 4:
        after = borders[borders > spare]  # whatever fits
    start = after[0] if len(after) else min(least, len(whole) - 1)
    return np.concatenate([whole[:1], whole[start:]])


def _bytes_by_character() -> dict[str, int]:
    """The byte of each character in a byte-level vocabulary: its own if it is printable.

    For the others stand characters beyond 255. The table is GPT-2's, which all byte-level tokenizers share.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}
