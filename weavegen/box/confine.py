"""Confines a process that only computes, by resource limits and a seccomp filter of system calls.

The filter is a classic BPF program (seccomp(2)). It is assembled here because the box has the standard library
alone; sandbox/seccomp.py builds its filter from the same constants.
"""

import ctypes
import platform
import resource
import struct
import sys

MAX_MEMORY_BYTES = 256 * 2**20
"""Bytes of address space of a confined process."""
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "gettimeofday": (96, 169),
    "getrusage": (98, 165), "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "getrandom": (318, 278),
}  # fmt: skip
"""System calls that a computation needs: numbers on x86-64 and aarch64 (asm/unistd.h). Others fail with EPERM."""
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Index into the pairs of numbers, and AUDIT_ARCH_* of linux/audit.h."""
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
"""BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K, from linux/bpf_common.h."""
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW and SECCOMP_RET_ERRNO, from linux/seccomp.h. The error number is added to the latter."""
REFUSE = ERRNO | 1
"""The call fails with EPERM."""
NUMBER_OFFSET, ARCHITECTURE_OFFSET = 0, 4
"""Offsets in struct seccomp_data of linux/seccomp.h."""
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2


def confine() -> None:
    """Give up everything but memory, the clock and open files. Raises OSError if the kernel refuses the filter.

    On other systems than Linux, and on other processors, only the limits apply: WEAVEGEN_SANDBOX is `none` there.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return
    data = filter_program(platform.machine())
    instructions = ctypes.create_string_buffer(data, len(data))
    program = struct.pack("HP", len(data) // 8, ctypes.addressof(instructions))  # struct sock_fprog
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the process can't be confined")


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Encode a BPF instruction (struct sock_filter, 8 bytes). A jump gives the number of instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def filter_program(machine: str) -> bytes:
    """Assemble the filter that allows ALLOWED and refuses everything else."""
    column, architecture = ARCHITECTURES[machine]
    numbers = [pair[column] for pair in ALLOWED.values()]
    check = [instruction(EQUAL, number, len(numbers) - place) for place, number in enumerate(numbers)]
    refuse, allow = instruction(RETURN, REFUSE), instruction(RETURN, ALLOW)
    same_architecture = [instruction(LOAD, ARCHITECTURE_OFFSET), instruction(EQUAL, architecture, 1), refuse]
    return b"".join([*same_architecture, instruction(LOAD, NUMBER_OFFSET), *check, refuse, allow])
