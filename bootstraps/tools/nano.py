"""The editor nano in a terminal."""

from typing import TYPE_CHECKING

from .terminal import Terminal, file_to_edit

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

KEYS = """\
Keys: C-o Enter save, C-x end, C-w search, C-k cut the line, C-u paste, M-u undo, M-e redo, C-c where the cursor is,
C-_ go to a line, C-a and C-e start and end of the line, M-\\ and M-/ of the file, C-g all keys.
Each is sent by itself: ["C-o", "Enter"]."""


class WeaveNano(Terminal):
    """nano on a file: `nano = WeaveNano(self, "story.txt")`, later `self.tools["nano"]` for the newest one.

    nano.send_keys("Hello") types, nano.send_keys("Enter") presses a key. Save: "C-o", "Enter". Search: "C-w".
    Cut a line: "C-k"; paste: "C-u". Where is the cursor: "C-c". What is not saved is lost by `close`.
    """

    programs = ("nano",)
    package = "nano"
    help = KEYS

    def __init__(self, agent: "Subagent", filepath: str):
        self.path = self.filepath = file_to_edit(filepath)
        # -I: no configuration files
        options = ("-I", "--", self.path)
        super().__init__(agent, f"WeaveNano ({self.path})", f"nano-{self.path}", "nano", arguments=options)
