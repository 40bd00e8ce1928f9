"""Makes a process that starts as root of its box run as a user of the box's image. The base interpreter runs this.

Also runs a command as such a user: `main`.
"""

import os
import pwd
import sys
from contextlib import suppress
from json import loads


def reap_orphans() -> None:
    """Fork. Return in the child; in the parent, reap processes until the child ends, then exit with its code."""
    child = os.fork()
    if child == 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    os.closerange(3, 1024)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


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


def main(descriptor: int) -> None:
    """Become the command that the open file `descriptor` describes as JSON, which sandbox/command.py writes."""
    if os.getpid() == 1:
        reap_orphans()
    with open(descriptor) as file:
        spec = loads(file.read())
    os.closerange(3, 1024)
    os.umask(0o022)
    try:
        os.makedirs(spec["app"], exist_ok=True)  # buildah leaves it to whoever runs the image
        become(spec["user"])
        os.chdir(spec["app"])
        os.execvp(spec["argv"][0], spec["argv"])
    except (OSError, LookupError) as error:
        sys.exit(f"{spec['argv'][0]} can't be run: {error}")
