"""The editor nano in a terminal."""

from typing import TYPE_CHECKING

from .terminal import Terminal, file_to_edit

if TYPE_CHECKING:
    from weavegen.box.api import Subagent


class WeaveNano(Terminal):
    """nano on a file: `nano = WeaveNano(self, "story.txt")`, later `self.tools["nano"]` for the newest one.

    nano.send_keys("Hello") types, nano.send_keys("Enter") presses a key. Save: "C-o", "Enter". Search: "C-w".
    Cut a line: "C-k"; paste: "C-u". Where is the cursor: "C-c". What is not saved is lost by `close`.
    """

    programs = ("nano",)
    package = "nano"

    def __init__(self, agent: "Subagent", path: str):
        self.path = self.filepath = file_to_edit(path)
        # -I: no configuration files
        options = ("-I", "--", self.path)
        super().__init__(agent, f"WeaveNano ({self.path})", f"nano-{self.path}", "nano", arguments=options)
