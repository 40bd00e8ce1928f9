"""Which packages the Python code of a job's traces can import. Pure."""

import hashlib
from collections.abc import Mapping

import msgspec


class Packages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A set of packages for boxes: made from a requirements file, or a folder that the user made."""

    versions: dict[str, str]
    """Version by normalised name."""
    requirements: str = ""
    """Text of the requirements file; "" for a folder."""
    folder: str | None = None
    """The user's folder, which each execute host must have."""

    @property
    def sha256(self) -> str:
        """Hash of all fields, hexadecimal."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What differs between two sets of versions, such as `numpy 2.4 instead of 2.5`."""
    names = sorted({*wanted, *found})
    return [
        f"{name} {found.get(name, 'is missing')} instead of {wanted.get(name, 'none')}"
        for name in names
        if wanted.get(name) != found.get(name)
    ]
