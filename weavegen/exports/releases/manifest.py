"""What a release says of itself: its manifest, its part of the card, hashes. Pure but for reading files."""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import msgspec

import weavegen
from weavegen.exports.releases.near_duplicates import PERMUTATIONS, SHINGLE

MANIFEST = "manifest.json"
CARD = "README.md"
SHOWN = 20
"""Examples of a finding in the manifest."""
MADE_BY = ("datasketch", "pyarrow")
"""Libraries that the bytes of a release depend on, or what is in it."""


def sha256_of(path: Path) -> str:
    """Hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Hash of a value that JSON has, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def code_sha256() -> str:
    """Hash of the files that weavegen consists of."""
    root = Path(weavegen.__file__).resolve().parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(root)}\x00".encode())
            found.update(bytes.fromhex(sha256_of(path)))
    return found.hexdigest()


def libraries() -> dict[str, str]:
    """Versions of what the bytes depend on."""
    return {name: installed(name) for name in MADE_BY}


def files(folder: Path, *, but: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Bytes and hash of each file below a folder, by name; hidden ones at its top left out."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: str(path.relative_to(folder)) for path in paths}
    return {
        name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path, name in names.items()
        if name not in but and not name.startswith(".")
    }


def differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is other in `found` than in `wanted`, a line each."""
    lines = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    lines += [f"{name} does not belong to it" for name in found.keys() - wanted.keys()]
    lines += [f"{name} differs" for name in wanted.keys() & found.keys() if wanted[name] != found[name]]
    return sorted(lines)


def manifest(name: str, facts: dict[str, Any], written: dict[str, dict[str, Any]]) -> bytes:
    """The text of manifest.json. The same facts and files give the same bytes."""
    value = {"release": name, **facts, "files": written}
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) + b"\n"


def section(name: str, facts: dict[str, Any]) -> str:
    """What the card says of a release, besides what it says of any export."""
    rows, leaks = facts["rows"], facts["contamination"]
    tokenizer = facts["tokenizer"]
    threshold = facts["near_duplicates"]["threshold"]
    said = {True: ", the one that wrote the traces", False: ", not the one that wrote the traces", None: ""}
    lines = [
        "",
        f"## Release {name}",
        "",
        f"Frozen {facts['created_at']} by weavegen {facts['version']} (code {facts['code_sha256'][:12]}). "
        f"`weavegen release {name} --verify FOLDER` compares the files with it, `--rebuild FOLDER` writes them "
        "again; manifest.json has a hash of each file, and in full what is here in short.",
        "",
        f"- Rows of the view: {rows['found']} found, {rows['open']} left out because their traces still ran, "
        f"{rows['near_duplicates']} near-duplicates removed, {rows['kept']} kept",
        "- Near-duplicates: "
        + (
            "kept, nothing was compared"
            if threshold is None
            else f"{SHINGLE}-word shingles, MinHash with {PERMUTATIONS} permutations, similarity {threshold} or "
            "more; the one with the higher reward stayed, then the older"
        ),
        "- Tokeniser: "
        + (
            "not known: no model server answered"
            if tokenizer is None
            else f"{tokenizer['sha256'][:12]}{said[tokenizer['wrote_the_traces']]}"
        ),
        f"- Rubrics: {', '.join(facts['rubrics']) or 'none'}",
        f"- Settings: {len(facts['settings'])} jobs, their hashes in the manifest",
        "",
        "### Contamination",
        "",
        f"{leaks['shown']} retrieved blocks were shown to the model while these traces were written, "
        f"{leaks['from_other_traces']} of them from other traces; {leaks['examples']} examples besides.",
        "",
        "| finding | retrieved blocks |",
        "|---|---|",
        f"| recorded later than it was shown, or still in the window | {leaks['future']['count']} |",
        f"| from a trace of another split | {leaks['other_split']['count']} |",
        f"| near-duplicate of what was written after it | {leaks['itself']['count']} |",
        f"| from a near-duplicate of the trace | {leaks['near_duplicate']['count']} |",
        f"| from a trace outside of the release | {leaks['outside']['count']} |",
    ]
    return "\n".join(lines) + "\n"
