"""How the programs of a box begin: what they are told, what they inherit, and as which user of an image they run."""

import os
import pwd
from contextlib import suppress
from json import loads
from typing import Any


def begin(descriptor: int, kept: str) -> dict[str, Any]:
    """Read what the open file `descriptor` says as JSON, and close every other open file above those of the terminal.

    `kept`: under this name it has the number of the one that stays open. Children do not inherit that.
    """
    with open(descriptor) as file:
        spec: dict[str, Any] = loads(file.read())
    number = int(spec[kept])
    os.closerange(3, number)
    os.closerange(number + 1, 1024)
    os.set_inheritable(number, False)
    return spec


def become(user: str) -> None:
    """Take the ids of a user of /etc/passwd, or of a number, and its HOME. Empty: stay root. Raises LookupError."""
    identity, _, group = user.partition(":")
    entry = None
    with suppress(KeyError):
        entry = pwd.getpwuid(int(identity or "0")) if (identity or "0").isdecimal() else pwd.getpwnam(identity)
    if entry is None and not (identity or "0").isdecimal():
        raise LookupError(f"the image has no user {identity!r}")
    number = int(identity or "0") if entry is None else entry.pw_uid
    own_group = number if entry is None else entry.pw_gid
    os.environ["HOME"] = "/root" if entry is None and number == 0 else entry.pw_dir if entry else "/"
    if entry is not None:
        os.initgroups(entry.pw_name, own_group)
    group_number = int(group) if group.isdecimal() else own_group
    os.setresgid(group_number, group_number, group_number)
    if number:
        os.setresuid(number, number, number)
