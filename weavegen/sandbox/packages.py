"""Makes the packages that Python in a box can import: a folder for each requirements file, mounted read-only.

pip installs a folder once on each host. The default packages are in packages.lock; scripts/setup.sh installs them
beside weavegen itself (`python -m weavegen.sandbox.packages`); otherwise they are installed in WEAVEGEN_HOME on first
use. The interpreter is the one that runs weavegen, so wheels fit.
"""

import hashlib
import importlib.metadata
import importlib.util
import logging
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from packaging.utils import canonicalize_name

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.kernel.packages import Packages, differences

log = logging.getLogger(__name__)

LOCK = Path(__file__).with_name("packages.lock")
"""The default packages with versions and hashes. packages.in says why each is there."""
SHARED = Path(sys.prefix) / "share" / "weavegen" / "packages"
"""Folders that all installations with this Python environment use."""
INSTALL_SECONDS = 900.0
MAX_REQUIREMENTS_CHARS = 2**20


def install(config: Config, requirements: str, versions: Mapping[str, str] | None = None) -> Path:
    """Return the folder with the packages of a requirements file, which pip installs if it is missing.

    `versions`: versions that it must have; by default those that pip chose first on this host. Raises UsageError.
    """
    if (found := installed(config, requirements, versions)) is not None:
        return found
    name = folder_name(requirements)
    if versions is not None:
        name += "-" + hashlib.sha256(repr(sorted(versions.items())).encode()).hexdigest()[:16]
    place = folders.private(config.home) / "packages" / name
    found = folders.once(place, lambda draft: run_pip(requirements, draft, versions), INSTALL_SECONDS)
    if versions is not None and (wrong := ", ".join(differences(versions, read_versions(found))[:3])):
        raise UsageError(f"this host has other packages than the job was enqueued with: {wrong}; enqueue it again")
    return found


def installed(config: Config, requirements: str, versions: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder with the packages of a requirements file; None if it is missing, or has other versions."""
    for place in (SHARED, config.home / "packages"):
        found = place / folder_name(requirements)
        if found.is_dir() and (versions is None or read_versions(found) == versions):
            return found
    return None


def folder_name(requirements: str) -> str:
    """Name of the folder of a requirements file. Its packages are compiled for one interpreter."""
    key = "\n".join((requirements, sys.implementation.cache_tag, sysconfig.get_platform()))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


@lru_cache(64)
def read_versions(folder: Path) -> dict[str, str]:
    """Version of each package with metadata, by normalised name. A folder that was installed never changes."""
    found = importlib.metadata.distributions(path=[str(folder)])
    return {canonicalize_name(name): one.version for one in found if (name := one.metadata["Name"])}


def run_pip(requirements: str, folder: Path, versions: Mapping[str, str] | None) -> None:
    """Install a requirements file into a new folder. Raises UsageError."""
    if importlib.util.find_spec("pip") is None:
        raise UsageError("packages can't be installed: this Python has no pip; run `python -m ensurepip`")
    with tempfile.TemporaryDirectory(prefix="weavegen-requirements-") as scratch:
        listed = Path(scratch, "requirements.txt")
        listed.write_text(requirements)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", "install"]
        command += ["--target", str(folder), "-r", str(listed)]
        if versions is not None and "--hash=" not in requirements:
            constraints = Path(scratch, "constraints.txt")
            constraints.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
            command += ["-c", str(constraints)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, cwd=scratch)
        except subprocess.TimeoutExpired:
            raise UsageError(f"pip has not installed the packages within {INSTALL_SECONDS:.0f} seconds") from None
        if done.returncode != 0:
            raise UsageError(f"pip can't install the packages: {reason(done.stderr)}")
    folder.mkdir(exist_ok=True)  # pip makes no folder for an empty file
    for script in folder.glob("bin/*"):  # commands such as `django-admin` start with the interpreter of the box
        first, separator, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            script.write_bytes(b"#!/usr/bin/env python3" + separator + rest)
    folders.let_read(folder)


def reason(stderr: str) -> str:
    """The first error that pip printed, in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines[-1:] or ["it printed nothing"])[0][:300]


def from_folder(folder: str | Path) -> Packages:
    """The packages of a user's folder: a virtual environment, or one of `pip install --target`. Raises UsageError."""
    path = Path(folder).absolute()
    return Packages(versions=read_versions(site_packages(path)), folder=str(path))


def site_packages(folder: Path) -> Path:
    """The folder with the packages of a virtual environment, or `folder` itself. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give a virtual environment or a folder of packages")
    version = sysconfig.get_python_version()
    if (folder / "pyvenv.cfg").exists():
        site = folder / "lib" / f"python{version}" / "site-packages"
        if not site.is_dir():
            raise UsageError(f"{folder} was not made with Python {version}, which boxes have: make it again with that")
        return site
    return folder


def from_file(config: Config, file: str | Path) -> Packages:
    """Install the packages of a requirements file. Raises UsageError."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{file} can't be read ({error}): give a requirements file") from None
    if len(text) > MAX_REQUIREMENTS_CHARS or "\x00" in text:
        raise UsageError(f"{file} is not a requirements file: give one package in each line")
    return Packages(requirements=text, versions=read_versions(install(config, text)))


def usual(config: Config) -> Packages | None:
    """The default packages. None, with a warning, if they can't be installed here."""
    text = LOCK.read_text()
    try:
        return Packages(requirements=text, versions=read_versions(install(config, text)))
    except UsageError as error:
        log.warning("boxes have only the standard library: %s", error)
        return None


def on_this_host(config: Config, packages: Packages | None) -> Path | None:
    """The folder with a job's packages on this host; None for a job without packages. Raises UsageError."""
    if packages is None:
        return None
    if packages.folder is None:
        return install(config, packages.requirements, packages.versions)
    site = site_packages(Path(packages.folder))
    if wrong := differences(packages.versions, read_versions(site)):
        raise UsageError(f"{packages.folder} has changed since the job was enqueued: {', '.join(wrong[:3])}")
    return site


def main() -> None:
    """Install the default packages for all installations with this Python environment."""
    text = LOCK.read_text()
    folder = SHARED / folder_name(text)
    for old in SHARED.glob("*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    try:
        folders.once(folder, lambda draft: run_pip(text, draft, None), INSTALL_SECONDS)
    except UsageError as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
