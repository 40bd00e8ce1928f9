"""A filter of system calls: none that makes a namespace or mounts something, none of a few often attacked ones.

What the box holds is an ordinary user. In a user namespace of its own it would be root again, with far more of
the kernel to try its luck on, and nothing that a trace does needs that.
"""

import errno
import platform
import struct

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
"""AUDIT_ARCH_*, from linux/audit.h."""

REFUSED = {
    # mount, umount2, pivot_root, chroot, unshare, setns, add_key, request_key, keyctl, bpf, perf_event_open,
    # userfaultfd, then io_uring (425 to 427), the new mount calls (428 to 432, 442): numbers from asm/unistd.h
    X86_64: (165, 166, 155, 161, 272, 308, 248, 249, 250, 321, 298, 323, *range(425, 433), 442),
    AARCH64: (40, 39, 41, 51, 97, 268, 217, 218, 219, 280, 241, 282, *range(425, 433), 442),
}
CLONE = {X86_64: 56, AARCH64: 220}
CLONE3 = 435
NEW_NAMESPACE = 0x7E020000 | 0x80
"""Any of the CLONE_NEW* flags."""
X32 = 0x40000000
"""The other calling convention of x86-64 starts here; nobody uses it."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data; of an argument, the lower half."""


def program() -> bytes | None:
    """The filter as bubblewrap reads it; None on processors that it is not written for."""
    architecture = {"x86_64": X86_64, "aarch64": AARCH64}.get(platform.machine())
    if architecture is None:
        return None

    def line(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_so, if_not, value)

    refuse, unknown = line(RETURN, REFUSE | errno.EPERM), line(RETURN, REFUSE | errno.ENOSYS)
    lines = [line(LOAD, ARCHITECTURE), line(EQUAL, architecture, 1, 0), refuse, line(LOAD, NUMBER)]
    lines += [line(AT_LEAST, X32, 0, 1), unknown]
    for number in REFUSED[architecture]:
        lines += [line(EQUAL, number, 0, 1), refuse]
    # clone3 has its flags in memory, out of a filter's sight: libc then falls back to clone
    lines += [line(EQUAL, CLONE3, 0, 1), unknown]
    lines += [line(EQUAL, CLONE[architecture], 0, 3), line(LOAD, FIRST_ARGUMENT)]
    lines += [line(ANY_BIT, NEW_NAMESPACE, 0, 1), refuse, line(RETURN, ALLOW)]
    return b"".join(lines)
