"""Separates the programs that verify an agent's work from the agent's changes. Uses only the standard library.

The verifier of a Harbor task is a script that runs programs of the image over the agent's files, and an agent may be
root of its box: it could replace bash or pytest. So the verifier's root file system has the image's own files in all
folders of programs, with the agent's new files below them. New files are hidden if they would run without being asked
for, such as *.pth, or in place of a program or module of the image. docs/harbor.md describes the remaining risk.

Run as a script in a user namespace (userns.py), where it finds the layers of the image, the agent's changes, and an
empty folder for the layer that hides and restores. Prints a Guarded as JSON.
"""

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or __name__ != "__main__":
    from weavegen.sandbox import userns
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import userns

SYSTEM = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libx32"),
    *(f"usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "local", "share")),
)
"""Folders of programs and libraries, in addition to the folders in the image's PATH."""
LOADED = re.compile(
    r"etc/(ld\.so\.[^/]*|ld\.so\.conf\.d/.*|nsswitch\.conf|profile|profile\.d/.*|bash\.bashrc|environment|zsh/.*"
    r"|python[\d.]*/.*|alternatives/.*|pam\.d/.*|security/.*|apt/apt\.conf(\.d/.*)?|dpkg/dpkg\.cfg(\.d/.*)?|pip\.conf"
    r"|ssl/openssl\.cnf)\Z"
    r"|(.*/)?\.(local/bin/(env|uvx?)|(cache|config)/(uv|pip)|curlrc|wgetrc|bash_profile|bash_login|profile)(/.*)?\Z"
    r"|(\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|conftest\.py|setup\.py)\Z"
)
"""Other files that programs read when they start, relative to the root. The verifier gets the image's versions."""
HOOKS = re.compile(
    r".*\.(pth|egg-link)\Z|(sitecustomize|usercustomize|conftest)\.py\Z|glibc-hwcaps\Z|python3\d+\.zip\Z"
)
"""Names of files that are run, or libraries that are loaded, without being asked for."""
PACKAGES = re.compile(r"(site|dist)-packages\Z|python3\.\d+\Z|lib-dynload\Z")
"""Names of folders in which Python finds modules."""
RUNNERS = sys.stdlib_module_names | {
    "pytest", "_pytest", "pluggy", "py", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments", "attr",
    "sitecustomize", "usercustomize",
}  # fmt: skip
"""Modules that run tests, and modules that these import: `python -m pytest` looks in its working folder first. Other
modules of the image are not listed, so that the agent's own, such as utils.py, stay."""
USUAL = {"apt-get", "bash", "curl", "git", "pip", "pip3", "pytest", "python", "python3", "sh", "uv", "uvx", "wget"}
"""Commands that tests install first. Where the image lacks them, an agent could put its own into /usr/local/bin."""
MODULES = (".py", ".pyc", ".so")
MAX_SHOWN = 20
MAX_ENTRY_POINTS = 2**20  # bytes of a file of entry points
SECONDS = 600  # time limit for all files of an agent


@dataclass(frozen=True)
class Guarded:
    programs: tuple[str, ...]
    """Folders in which the image's files have priority (userns.command)."""
    changed: tuple[str, ...]
    """The first few files of the agent that were hidden or replaced by the image's."""


def guard(layers: Path, names: str, agent: Path, folder: Path, path: str, workdir: str) -> Guarded:
    """Fill `folder` with the verifier's layer. `names`: `lowerdir` of the image; `path`: its PATH. Raises OSError."""
    folders = {"layers": str(layers), "agent": str(agent), "guard": str(folder)}
    launch = json.dumps({"folders": folders, "names": names.split(":"), "path": path.split(":"), "workdir": workdir})
    command = [sys.executable, "-ISs", __file__, launch]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise OSError(f"the agent's changes can't be read in {SECONDS} seconds") from None
    if done.returncode != 0:
        raise OSError(f"the agent's changes can't be read: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout)
    return Guarded(tuple(found["programs"]), tuple(found["changed"]))


class Guard:
    def __init__(self, layers: list[str], path: list[str], workdir: str):
        self.layers = [Path(userns.STAGE, "layers", name) for name in layers]
        self.agent, self.folder = Path(userns.STAGE, "agent"), Path(userns.STAGE, "guard")
        self.workdir = workdir.strip("/")
        self.path = [entry.strip("/") for entry in path if entry.startswith("/")]
        self.changed: list[str] = []
        self.programs = self.find_programs()
        self.commands = {name for entry in self.path for name in self.names(entry)}
        self.modules = RUNNERS | {module_name(name) for name in self.find_modules()}

    def image(self, name: str) -> Path | None:
        """The image's file with this name, from the newest layer that has it; None if a newer layer removed it."""
        for layer in self.layers:
            place = layer / name
            with contextlib.suppress(OSError):
                status = place.lstat()
                return None if is_whiteout(status) else place
        return None

    def names(self, folder: str) -> Iterator[str]:
        """The names in a folder of the image."""
        for layer in self.layers:
            with contextlib.suppress(OSError):
                yield from os.listdir(layer / folder)

    def find_programs(self) -> list[str]:
        """The folders of programs, none inside another. Restores the image's links to such folders."""
        found: list[str] = []
        for name in (*SYSTEM, *map(self.folder_of, self.path)):
            place = self.image(name)
            if place is None or any(name == other or name.startswith(f"{other}/") for other in found) or not name:
                continue
            if place.is_symlink():
                if os.path.lexists(self.agent / name):
                    self.restore(name)
            elif place.is_dir():
                self.make_folder(name, place)
                found.append(name)
        return found

    def folder_of(self, entry: str) -> str:
        """The folder to guard for an entry of PATH: its parent, unless the agent works there. Empty: there is none."""
        folders = (os.path.dirname(entry) or entry, entry)
        return next((folder for folder in folders if not f"{self.workdir}/".startswith(f"{folder}/")), "")

    def find_modules(self) -> Iterator[str]:
        """The names of the modules that Python finds in the image."""
        for layer in self.layers:
            for folder in self.programs:
                for place, folders, files in os.walk(layer / folder):
                    if PACKAGES.match(os.path.basename(place)):
                        yield from folders
                        yield from files
                    folders[:] = [name for name in folders if may_lead_to_modules(place, name)]

    def write(self) -> None:
        """Go through all that the agent has changed."""
        for place, folders, files in os.walk(self.agent):
            parent = os.path.relpath(place, self.agent)
            for name in [*folders, *files]:
                path = name if parent == "." else f"{parent}/{name}"
                kept = self.check(path, Path(place, name))
                if not kept and name in folders:
                    folders.remove(name)

    def check(self, path: str, place: Path) -> bool:
        """Hide a file of the agent, or restore the image's, if necessary. Returns whether it stays as it is."""
        try:
            status, original = place.lstat(), self.image(path)
        except OSError:  # the path is too long for programs too
            return False
        is_folder, is_link = stat.S_ISDIR(status.st_mode), stat.S_ISLNK(status.st_mode)
        in_programs = any(f"{path}/".startswith(f"{folder}/") for folder in self.programs)
        loaded = any(LOADED.match(name) for name in (path, f"{path}/"))  # a file, or a folder of them
        loaded = loaded or (is_link and f"{self.workdir}/".startswith(f"{path}/"))
        if original is not None and (in_programs or loaded):
            if is_folder and original.is_dir() and not original.is_symlink():
                return True  # merged: its contents are checked one by one
            self.note(path)
            if not in_programs:  # there, the image's files come first anyway
                self.restore(path)
            return False
        if is_whiteout(status) or not (loaded or self.takes_over(path, place, status, in_programs)):
            return True
        self.note(path)
        self.hide(path)
        return False

    def takes_over(self, path: str, place: Path, status: os.stat_result, in_programs: bool) -> bool:
        """Whether a new file would be run unasked, or in place of something of the image."""
        folder, _, name = path.rpartition("/")
        above = folder.rpartition("/")[2]
        if HOOKS.match(name) and (in_programs or PACKAGES.match(above) or not name.startswith("conftest")):
            return True
        if in_programs and above == "__pycache__":
            return True
        if stat.S_ISLNK(status.st_mode) and (name == "__pycache__" or PACKAGES.match(name)):
            return True  # its name does not tell what it leads to
        if PACKAGES.match(above) and (module_name(name) in self.modules):
            return True
        if is_module(place) and (in_programs or folder == self.workdir):
            others = {module_name(other) for other in self.names(folder) if other.endswith(MODULES) or "." not in other}
            if module_name(name) in (others if in_programs else RUNNERS):
                return True
        if name == "entry_points.txt":
            readable = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_ENTRY_POINTS
            return not readable or "pytest11" in place.read_text(errors="replace")
        if folder not in self.path or folder == self.workdir:
            return False
        return name in self.commands or ("local" in folder and name in USUAL)

    def note(self, path: str) -> None:
        if len(self.changed) < MAX_SHOWN:
            self.changed.append("/" + os.fsencode(path).decode(errors="replace"))

    def make_parents(self, path: str) -> None:
        if parent := os.path.dirname(path):
            self.make_folder(parent, self.image(parent) or self.agent / parent)

    def make_folder(self, path: str, like: Path) -> None:
        """Make a folder in the layer, and its parents, with the owners and modes that `like` and its parents have."""
        self.make_parents(path)
        place = self.folder / path
        if not place.is_dir():
            place.mkdir()
            status = like.stat()
            os.chown(place, status.st_uid, status.st_gid)
            place.chmod(stat.S_IMODE(status.st_mode))

    def hide(self, path: str) -> None:
        """Hide a file by a whiteout of overlayfs: a character device 0/0."""
        self.make_parents(path)
        os.mknod(self.folder / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))

    def restore(self, path: str) -> None:
        """Put the image's file above the agent's. A folder becomes a folder with all that the image has in it."""
        original = self.image(path)
        assert original is not None
        if os.path.lexists(self.folder / path):
            return
        self.make_parents(path)
        if original.is_dir() and not original.is_symlink():
            self.make_folder(path, original)
            for name in sorted(set(self.names(path))):
                if self.image(f"{path}/{name}") is not None:
                    self.restore(f"{path}/{name}")
            return
        shutil.copy2(original, self.folder / path, follow_symlinks=False)
        status = original.lstat()
        os.chown(self.folder / path, status.st_uid, status.st_gid, follow_symlinks=False)


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_module(place: Path) -> bool:
    """Whether Python can import a file: a module, a folder with `__init__`, or a link, which may lead to either."""
    return place.is_symlink() or (any(place.glob("__init__.*")) if place.is_dir() else place.name.endswith(MODULES))


def module_name(name: str) -> str:
    """The name of the module in a file or folder, judged by the file's name alone."""
    return name.partition(".")[0]


def may_lead_to_modules(place: str, name: str) -> bool:
    """Whether a folder of programs is searched for modules: lib/python3.11/site-packages and the like."""
    return name.startswith(("python", "lib", "local", "x86_64", "aarch64", "venv", "env", "site-", "dist-")) or (
        os.path.basename(place) in ("opt", "envs")
    )


def main(text: str) -> None:
    sys.setrecursionlimit(20_000)  # the agent may nest folders as deep as a path can be long
    launch = json.loads(text)
    userns.begin(launch["folders"])
    found = Guard(launch["names"], launch["path"], launch["workdir"])
    found.write()
    programs = [f"/{name}" for name in found.programs]
    sys.stdout.write(json.dumps({"programs": programs, "changed": found.changed}))


if __name__ == "__main__":
    main(sys.argv[1])
