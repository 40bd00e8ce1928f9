"""The filter of system calls for a box: refuses what ordinary programs do not need and what could reach the host.

The code in a box has the rights of an ordinary user. The kernel would refuse such a user most of these calls
anyway; the filter is a second line of defence against errors in the kernel. It also refuses new user namespaces:
in its own, the user would be root, with access to much more of the kernel.

bubblewrap takes the filter as a compiled BPF program (`--seccomp`). It is assembled here because libseccomp's
Python module is not on PyPI, and the program is a plain list of comparisons.
"""

import errno
import platform
from pathlib import Path

from weavegen.box.confine import ALLOW, ARCHITECTURE_OFFSET, ARCHITECTURES, EQUAL, ERRNO, LOAD, NUMBER_OFFSET, RETURN
from weavegen.box.confine import instruction as instr

LINES = Path(__file__).with_name("refused_calls.txt").read_text().splitlines()
REFUSED = {
    name: (int(x86_64), None if aarch64 == "-" else int(aarch64))
    for name, x86_64, aarch64 in (line.split() for line in LINES if line and not line.startswith("#"))
}
"""Calls that fail with EPERM: numbers on x86-64 and on aarch64, None where the architecture lacks the call."""
CLONE, CLONE3 = (56, 220), 435
SOCKET, SOCKETPAIR, IOCTL = (41, 198), (53, 199), (16, 29)
LAST_KNOWN = 450
"""Higher numbers are newer calls, or calls of x32. They fail with ENOSYS, for which libraries have fallbacks."""
NEW_NAMESPACE = 0x7E020000 | 0x80  # all CLONE_NEW* flags
FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others are refused; AF_VSOCK, for one, ignores network namespaces."""
NETLINK, ROUTE = 16, 0
"""Of netlink only NETLINK_ROUTE is allowed, which lists network addresses."""
PROTOCOLS = (0, 1, 6, 17, 58)
"""Internet protocols: unspecified, ICMP, TCP, UDP, ICMPv6. Others are rare, and make the kernel load modules."""
MMAP, HUGE = (9, 222), 0x40000
"""MAP_HUGETLB takes pages that the host has reserved, and that no memory limit counts."""
INJECTIONS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX: they simulate input on a terminal
FCNTL, SIGNALS = (72, 25), (1024, 1026)
"""F_SETLEASE and F_NOTIFY report and delay what others do with a file or folder, in other boxes and on the host."""
SETSOCKOPT, SOL_SOCKET, BUFFER_SIZES = (54, 208), 1, (7, 8)
"""SO_SNDBUF and SO_RCVBUF are only hints. Setting them has no effect, so every socket has the default buffer sizes."""
AT_LEAST, ANY_BIT = 0x35, 0x45
"""BPF_JMP | BPF_JGE | BPF_K and BPF_JMP | BPF_JSET | BPF_K, from linux/bpf_common.h."""
ARGUMENTS_OFFSET = 16
"""Offset of the arguments in struct seccomp_data. Each has eight bytes, of which the lower four are tested."""


def program(machine: str | None = None, allowed: frozenset[str] = frozenset()) -> bytes | None:
    """Assemble the filter for a processor (`platform.machine()`). None if there is none for it.

    `allowed`: names of calls in REFUSED that it lets through.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        return None
    column, architecture = ARCHITECTURES[machine]
    refuse, unknown = instr(RETURN, ERRNO | errno.EPERM), instr(RETURN, ERRNO | errno.ENOSYS)
    allow = instr(RETURN, ALLOW)
    code = [instr(LOAD, ARCHITECTURE_OFFSET), instr(EQUAL, architecture, 1, 0), refuse, instr(LOAD, NUMBER_OFFSET)]
    # A filter can't read the flags of clone3, which are in memory. After ENOSYS, libc falls back to clone.
    code += [instr(EQUAL, CLONE3, 0, 1), unknown, instr(AT_LEAST, LAST_KNOWN + 1, 0, 1), unknown]
    for name, numbers in REFUSED.items():
        if name not in allowed and (number := numbers[column]) is not None:
            code += [instr(EQUAL, number, 0, 1), refuse]
    code += only_for(CLONE[column], [argument(0), instr(ANY_BIT, NEW_NAMESPACE, 0, 1), refuse, allow])
    code += only_for(MMAP[column], [argument(3), instr(ANY_BIT, HUGE, 0, 1), refuse, allow])
    for call, commands in ((IOCTL, INJECTIONS), (FCNTL, SIGNALS)):
        refused = [part for command in commands for part in (instr(EQUAL, command, 0, 1), refuse)]
        code += only_for(call[column], [argument(1), *refused, allow])
    sizes = [argument(2), *require_one_of(BUFFER_SIZES, allow), instr(RETURN, ERRNO)]
    code += only_for(SETSOCKOPT[column], [argument(1), instr(EQUAL, SOL_SOCKET, 1, 0), allow, *sizes])
    family = [argument(0), *require_one_of(FAMILIES, refuse)]
    # After this error, su and useradd go on as on a kernel without the audit protocol. After EPERM they fail.
    other = instr(RETURN, ERRNO | errno.EPROTONOSUPPORT)
    netlink = [instr(EQUAL, NETLINK, 0, 4), argument(2), instr(EQUAL, ROUTE, 1, 0), other, allow]
    unix = [instr(EQUAL, 1, 0, 1), allow]
    internet = [argument(2), *require_one_of(PROTOCOLS, refuse), allow]
    for call in (SOCKET, SOCKETPAIR):
        code += only_for(call[column], [*family, *netlink, *unix, *internet])
    return b"".join([*code, allow])


def argument(number: int) -> bytes:
    """Load an argument of the system call."""
    return instr(LOAD, ARGUMENTS_OFFSET + 8 * number)


def only_for(call: int, body: list[bytes]) -> list[bytes]:
    """Run `body` for one system call only. `body` must end with a return."""
    return [instr(EQUAL, call, 0, len(body)), *body]


def require_one_of(values: tuple[int, ...], otherwise: bytes) -> list[bytes]:
    """Go on after these instructions if the loaded value is one of `values`, else run `otherwise`."""
    return [*(instr(EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)), otherwise]
