"""A filter of system calls: what an ordinary program needs, without what opens the kernel or reaches past the box.

What the box holds is an ordinary user. In a user namespace of its own it would be root again, with far more of
the kernel to try its luck on, and nothing that a trace does needs that. Much of what is refused here the kernel
would refuse such a user, too: this is the second line.
"""

import errno
import platform
import struct

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
"""AUDIT_ARCH_*, from linux/audit.h."""

REFUSED = {
    # namespaces, mounts, roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # the machine as a whole
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    # parts of the kernel that were often the way in
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    # other processes' memory and files
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    # memory that no process shows as its own, and stores that all boxes of a user share
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "io_setup": (206, 0),
}
"""Name: number on x86-64 and on aarch64, from asm/unistd.h; EPERM is the answer."""
CLONE, CLONE3 = (56, 220), 435
SOCKET, SOCKETPAIR, IOCTL = (41, 198), (53, 199), (16, 29)
UNKNOWN = 450
"""System calls above this one are newer than this list, or of x32: ENOSYS, and libraries do without."""
NEW_NAMESPACE = 0x7E020000 | 0x80
"""Any of the CLONE_NEW* flags."""
FAMILIES = (1, 2, 10, 16)
"""Kinds of sockets: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Vsock, for one, knows no namespaces at all."""
NETLINK, ROUTE = 16, 0
"""Of netlink only what says which addresses there are."""
PROTOCOLS = (0, 1, 6, 17, 58)
"""Of the internet: none named, ICMP, TCP, UDP, ICMPv6; the others are little used and loaded when asked for."""
MMAP, HUGE = (9, 222), 0x40000
"""MAP_HUGETLB takes pages that the host has set aside, and that no account of memory counts."""
INJECTIONS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into somebody's terminal."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data; of an argument, which has eight bytes, the lower half is looked at."""


def program(machine: str | None = None) -> bytes | None:
    """The filter as bubblewrap reads it; None on processors that it is not written for."""
    machine = machine or platform.machine()
    if machine not in ("x86_64", "aarch64"):
        return None
    which = 0 if machine == "x86_64" else 1
    refuse, unknown, allow = (
        line(RETURN, REFUSE | errno.EPERM),
        line(RETURN, REFUSE | errno.ENOSYS),
        line(RETURN, ALLOW),
    )
    lines = [line(LOAD, ARCHITECTURE), line(EQUAL, (X86_64, AARCH64)[which], 1, 0), refuse, line(LOAD, NUMBER)]
    # clone3 has its flags in memory, out of a filter's sight: libc then falls back to clone
    lines += [line(EQUAL, CLONE3, 0, 1), unknown, line(AT_LEAST, UNKNOWN + 1, 0, 1), unknown]
    for numbers in REFUSED.values():
        if (number := numbers[which]) is not None:
            lines += [line(EQUAL, number, 0, 1), refuse]
    lines += only_if(CLONE[which], [argument(0), line(ANY_BIT, NEW_NAMESPACE, 0, 1), refuse, allow])
    lines += only_if(MMAP[which], [argument(3), line(ANY_BIT, HUGE, 0, 1), refuse, allow])
    lines += only_if(
        IOCTL[which],
        [argument(1), *(part for code in INJECTIONS for part in (line(EQUAL, code, 0, 1), refuse)), allow],
    )
    family = [argument(0), *one_of(FAMILIES, refuse)]
    netlink = [line(EQUAL, NETLINK, 0, 4), argument(2), line(EQUAL, ROUTE, 1, 0), refuse, allow]
    unix = [line(EQUAL, 1, 0, 1), allow]
    internet = [argument(2), *one_of(PROTOCOLS, refuse), allow]
    for call in (SOCKET, SOCKETPAIR):
        lines += only_if(call[which], [*family, *netlink, *unix, *internet])
    return b"".join([*lines, allow])


def line(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """An instruction; a jump says how many to leave out."""
    return struct.pack("=HBBI", code, if_so, if_not, value)


def argument(number: int) -> bytes:
    return line(LOAD, ARGUMENTS + 8 * number)


def only_if(call: int, body: list[bytes]) -> list[bytes]:
    """The body for one system call; it must end by itself."""
    return [line(EQUAL, call, 0, len(body)), *body]


def one_of(values: tuple[int, ...], otherwise: bytes) -> list[bytes]:
    """Go on behind this with any of the values."""
    left = len(values)
    return [*(line(EQUAL, value, left - place, 0) for place, value in enumerate(values)), otherwise]
