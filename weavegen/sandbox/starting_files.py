"""The initial files of /app: packed when a job is enqueued, unpacked once on each execute host.

Boxes mount them read-only at `Layout.files`, and copy them to /app before anything is executed. They are laid over the
project's own folders `bootstraps` and `tools`: a file of the job has priority over one of the same name.
"""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from weavegen import folders
from weavegen.config import Config

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = {"bootstraps": PROJECT / "bootstraps", "tools": PROJECT / "bootstraps" / "tools"}
IMPORTABLE = {name: folder for name, folder in FOLDERS.items() if folder.is_dir()}
"""The folders that can be imported in boxes besides the standard library, by name."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of files by relative path. Equal files give equal bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def sha256(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


def unpacked(config: Config, digest: str, load: Callable[[], bytes]) -> Path:
    """The folder with the files of an archive on this host; `load` gives the archive if it is missing."""
    return folders.once(folders.private(config.home) / "files" / digest, lambda draft: unpack(load(), draft))


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive into a new folder, on top of the project's own files."""
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        names = {entry.name.partition("/")[0] for entry in opened}
        for name in names & IMPORTABLE.keys():
            shutil.copytree(IMPORTABLE[name], folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        folders.extract(opened, folder, "data")
    folders.let_read(folder)


def importable(files: Path | None) -> dict[str, Path]:
    """The folders that can be imported besides the standard library, by name, without those that `files` has."""
    return {name: folder for name, folder in IMPORTABLE.items() if files is None or not (files / name).is_dir()}
