"""The look-up tools of a researcher, as the model reads them. They are declared in kernel/lookups.py."""

import inspect

from weavegen.agents.dialogue import Tool
from weavegen.kernel.lookups import RESEARCH_TOOLS, Arguments


class LookUpTool(Tool):
    """A tool that a worker runs for the agent (a `LookUp` step)."""

    def __init__(self, name: str, arguments: type[Arguments]) -> None:
        self.name, self.description = name, inspect.getdoc(arguments) or ""
        self._arguments = arguments


TOOLS = [LookUpTool(name, arguments) for name, arguments in RESEARCH_TOOLS.items()]
