"""The manifest of a release, its section of the card, and hashes. No database."""

import hashlib
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import msgspec

from weavegen.exports.card import CARD, template
from weavegen.exports.folder import file_sha256
from weavegen.exports.releases.near_duplicates import PERMUTATIONS, SHINGLE_WORDS

MANIFEST = "manifest.json"
SHOWN = 20
"""Examples of a finding in the manifest."""
LIBRARIES = ("datasketch", "pyarrow")
"""Libraries that decide a release's rows or bytes."""


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def code_sha256() -> str:
    """The SHA-256 of weavegen's own files."""
    root = Path(__file__).resolve().parents[2]
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(root)}\x00".encode())
            total.update(bytes.fromhex(file_sha256(path)))
    return total.hexdigest()


def libraries() -> dict[str, str]:
    """The installed versions of LIBRARIES."""
    return {name: installed(name) for name in LIBRARIES}


def files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and hash of each file below a folder except the manifest, by name. Hidden files at its top are left out."""
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for name, path in paths.items()
        if name != MANIFEST and not name.startswith(".")
    }


def differences(expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """How the files `actual` differ from those expected, one per line."""
    lines = [f"{name} is missing" for name in expected.keys() - actual.keys()]
    lines += [f"{name} does not belong to it" for name in actual.keys() - expected.keys()]
    lines += [f"{name} differs" for name in expected.keys() & actual.keys() if expected[name] != actual[name]]
    return sorted(lines)


def sign(folder: Path, name: str, facts: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """Add a release's facts to its folder: to the card, and as manifest.json. Returns files and manifest hash.

    The same facts and files give the same bytes.
    """
    with (folder / CARD).open("a") as card:
        values = {"name": name, "shingle_words": SHINGLE_WORDS, "permutations": PERMUTATIONS}
        card.write(template("release.md").render(facts, **values))
    signed = files(folder)
    value = {"release": name, **facts, "files": signed}
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) + b"\n")
    return signed, file_sha256(folder / MANIFEST)
