"""The editor Emacs in a terminal."""

from typing import TYPE_CHECKING

from .terminal import Terminal, file_to_edit

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

QUIET = "(setq native-comp-jit-compilation nil native-comp-deferred-compilation nil)"
"""Turns off the background compiler of Emacs 29 and 28, which opens windows with warnings."""

KEYS = """\
Keys: C-x C-s save, C-x C-f open a file, C-s search, C-k cut to the line's end, C-y paste, C-/ undo, C-g cancel,
C-a and C-e start and end of the line, M-< and M-> of the buffer, M-g g go to a line, M-% replace, C-x C-c end.
Each is sent by itself: ["C-x", "C-s"]."""


class WeaveEmacs(Terminal):
    """Emacs: `emacs = WeaveEmacs(self, "story.txt")`, or without a file; later `self.tools["emacs"]`.

    emacs.send_keys("Hello") types, emacs.send_keys("Enter") presses a key. Open: "C-x", "C-f", name, "Enter".
    Save: "C-x", "C-s". Search: "C-s". Kill to the line's end: "C-k". What is not saved is lost by `close`.
    """

    # On Debian `emacs` is a link through /etc, which the box lacks; the others are programs.
    programs = ("emacs", "emacs-nox", "emacs-gtk", "emacs-lucid", "emacs-pgtk")
    package = "emacs-nox"
    help = KEYS

    def __init__(self, agent: "Subagent", filepath: str | None = None):
        self.path = self.filepath = None if filepath is None else file_to_edit(filepath)
        keys = ("emacs",) if self.path is None else (f"emacs-{self.path}", "emacs")
        title = "WeaveEmacs" if self.path is None else f"WeaveEmacs ({self.path})"
        # -nw: in the terminal; -Q: no configuration files, no splash screen
        options = ["-nw", "-Q", "--eval", QUIET, *([] if self.path is None else [self.path])]
        super().__init__(agent, title, *keys, arguments=options)
