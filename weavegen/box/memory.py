"""Hides the memory of a process of the box from the others, which have the same user."""

PR_SET_DUMPABLE = 4
"""From linux/prctl.h."""


def hide_memory(hidden: bool = True) -> None:
    """Let no other process of this user read or write this one's memory and open files. Forks inherit this."""
    import ctypes  # not above: process 1 of a box imports as little as possible before it forks

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(not hidden), 0, 0, 0)
