"""Converts text to tokens and back with a model's tokenizer.json."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from weavegen.errors import UsageError
from weavegen.kernel.window import BORDER

END = "</s>"
"""The token that ends a text, if the tokenizer has one."""


class Texts:
    """A byte-level tokenizer: each token stands for bytes, so every sequence of tokens has a text."""

    def __init__(self, folder: Path) -> None:
        """Read tokenizer.json. Raises UsageError if it is invalid or not byte-level."""
        file = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
            self._tokenizer.no_truncation()  # which the file may ask for
            self._tokenizer.no_padding()
        except Exception as error:  # noqa: BLE001 (the library raises plain Exception)
            raise UsageError(f"{file}: {error}: give a folder with a model and its tokenizer") from None
        self.digest = hashlib.sha256(file.read_bytes()).hexdigest()
        """Equal for equal tokenizers."""
        spelled = _bytes_by_character()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}
        self._bytes: list[bytes] = []
        for number in range(self._tokenizer.get_vocab_size()):
            token = self._tokenizer.id_to_token(number) or ""
            try:
                own = added[number].content.encode() if number in added else bytes(spelled[one] for one in token)
            except KeyError:
                message = f"{file}: {token!r} is not a byte-level token: serve this model with vLLM"
                raise UsageError(message) from None
            self._bytes.append(own)
        self.border: int | None = self._tokenizer.token_to_id(BORDER)
        self.end: int | None = self._tokenizer.token_to_id(END)

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self._bytes)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of a text. `special`: with the special tokens of a whole text, mostly BOS."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def spell(self, token: int) -> bytes:
        """Return the bytes that a token adds to a text. A special token adds nothing."""
        return b"" if token in self._special else self._bytes[token]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, including special tokens, with U+FFFD for invalid UTF-8. Raises IndexError."""
        if unknown := [token for token in ids if not 0 <= token < self.size]:
            raise IndexError(unknown[0])
        return b"".join(self._bytes[token] for token in ids).decode("utf-8", "replace")


def _bytes_by_character() -> dict[str, int]:
    """Return the byte for each character of a byte-level vocabulary (GPT-2's table, which all tokenizers share).

    A printable byte is its own character. Characters above 255 stand for the other bytes.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}
