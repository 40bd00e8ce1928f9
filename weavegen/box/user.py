"""How programs in a box start: the JSON that they read, the files that they inherit, and the user that they become."""

import grp
import os
import pwd
import sys
from json import loads
from typing import Any


def begin(descriptor: int, kept: str) -> dict[str, Any]:
    """Read the JSON in the open file `descriptor`, and close all other descriptors above 2 except one.

    `kept`: the key under which the JSON has the number of that descriptor. Children do not inherit it.
    """
    with open(descriptor) as file:
        spec: dict[str, Any] = loads(file.read())
    del sys.argv[1:]  # `pytest.main()` and `ArgumentParser().parse_args()` of a block would read them
    number = int(spec[kept])
    os.closerange(3, number)
    os.closerange(number + 1, 1024)
    os.set_inheritable(number, False)
    return spec


def become(user: str) -> None:
    """Take the ids of a user of /etc/passwd, or of a number, and the user's HOME if the image sets none.

    Empty: stay root. Raises LookupError.
    """
    name, _, group = user.partition(":")
    name = name or "0"
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        number, group_number, home = entry.pw_uid, entry.pw_gid, entry.pw_dir
        os.initgroups(entry.pw_name, group_number)
    except KeyError:
        if not name.isdecimal():
            raise LookupError(f"the image has no user {name!r}") from None
        number, group_number = int(name), 0  # as in Docker
        home = "/" if number else "/root"
    os.environ.setdefault("HOME", home)
    if group:
        group_number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    os.setresgid(group_number, group_number, group_number)
    if number:
        os.setresuid(number, number, number)
