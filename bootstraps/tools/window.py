"""The base class of all tools: opens, shows and closes a tool."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weavegen.box.api import Subagent


class Window:
    """A tool. While it is open it is in `agent.tools` and has an observation view."""

    def __init__(self, agent: "Subagent", title: str, *keys: str):
        """Open under `keys`; one that is open under the first key is closed. Too many views: ValueError."""
        self.agent, self.title, self.keys = agent, title, keys
        if (old := agent.tools.get(keys[0])) is not None:
            old.close()
        agent.add_observation_view(title, self.show, tool=keys[0])
        agent.tools.update(dict.fromkeys(keys, self))
        self.is_open = True

    def show(self, agent: "Subagent") -> str:
        """The view."""
        # A tool that the bootstrap file opened moves to the main subagent afterwards.
        if agent.tools.get(self.keys[0]) is self:
            self.agent = agent
        return self.render(agent)

    def render(self, agent: "Subagent | None" = None) -> str:
        """What there is to see."""
        raise NotImplementedError

    def close(self, agent: "Subagent | None" = None) -> None:
        """Close this tool and its view."""
        if not self.is_open:
            return
        self.is_open = False
        tools = self.agent.tools
        mine = [key for key in self.keys if tools.get(key) is self]
        for key in mine:
            del tools[key]
        for key in mine:
            # A key that several tools share refers to the one that was opened last.
            others = [tool for tool in tools.values() if isinstance(tool, Window) and key in tool.keys]
            if others:
                tools[key] = others[-1]
        self.agent.remove_observation_view(self.title)

    def check_open(self) -> None:
        if not self.is_open:
            raise RuntimeError(f"{self.title} is closed: open a new one.")
