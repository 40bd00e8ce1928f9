"""The task: write a tool for agents, by the conventions of the tools that there are.

The tool is a class in /app/my_tool.py. Which one it is, the parameters choose, such as {"tool": "dates"}: dates (a
calculator of dates), table (a viewer of tables with filters), log (a searcher of logs), or "any", which draws one. A
view says what its methods and its own view must do, and shows cases that fail. Other cases of the same kind, which I
don't see, decide whether the tool is right.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from tools.editor import WeaveEditor

from bootstraps import tool_tasks
from bootstraps.params import read_params

FILE = "/app/my_tool.py"

[chosen] = read_params(args.params, tool=("any", ["any", *tool_tasks.SPECS]))
drawn = random.choice(list(tool_tasks.SPECS))
spec = tool_tasks.SPECS[drawn if chosen == "any" else chosen]
case_seed = random.getrandbits(64)
shown_seed = random.getrandbits(64)
EXTRA = ", text" if spec.name != "DateCalculator" else ""

FRAME = f'''\
from tools.window import Window


class {spec.name}(Window):
    """A tool: `tool = {spec.name}(self{EXTRA})`, later `self.tools["{spec.key}"]`."""

    def __init__(self, agent{EXTRA}):
        super().__init__(agent, "{spec.name}", "{spec.key}")

    def render(self, agent=None):
        """What the view shows."""
        return "nothing yet"
'''


def tool_text():
    with open(FILE, errors="replace") as file:
        return file.read()


def shown_cases(group):
    """The cases of a group that I may see: dicts with the constructor's arguments, calls, and what each must give."""
    return tool_tasks.cases(spec, group, random.Random(shown_seed))


def failing(group):
    """The cases of a group that the saved file fails."""
    found = shown_cases(group)
    scores = tool_tasks.grade(spec, tool_text(), found)
    return [case for case, score in zip(found, scores, strict=True) if score < 1]


def try_tool(self, *arguments):
    """Open the saved tool for me, to see what it does: gives it, and its view is there from the next tick on."""
    names = {"__name__": "my_tool"}
    exec(compile(tool_text(), FILE, "exec"), names)
    return names[spec.name](self, *arguments)


def view_requirements(self):
    """What the tool must do, and the first case of each group that fails."""
    lines = [f'Write the class {spec.name} in {FILE}, with the key "{spec.key}" in `self.tools`.', spec.methods, ""]
    for group in tool_tasks.GROUPS:
        wrong = failing(group)
        lines.append(
            f"{group}: {f'{len(wrong)} of {len(shown_cases(group))} cases fail' if wrong else 'all cases pass'}"
        )
        for case in wrong[:1]:
            given = ", ".join(f"a text of {len(one.splitlines())} lines" for one in case.arguments)
            lines.append(f"  {spec.name}({', '.join(filter(None, ['agent', given]))})")
            for (name, *rest), wanted in zip(case.calls, case.wanted, strict=True):
                lines.append(f"  {name}({', '.join(map(repr, rest))}) must give {wanted!r}")
    return "\n".join(lines)


"""
I'm about to write a tool. What do I know of tools? `tools.window.Window` does the common part: its constructor takes
the subagent, a title and a key, puts the tool into `self.tools` and adds its view; `close()` takes both away again.
What is left to me is to set attributes in `__init__`, before `super().__init__` since the view may be asked for at
once, to write one method for each line of the requirements, and to let `render` tell the state. In the cases,
"open()" stands for the keys of the tools that are open, and "render()" for the text of the view.

What is a good order? One method a tick. I read its line twice, write it with the editor,
`self.tools["editor-/app/my_tool.py"]`, and see in the view which cases pass now. `try_tool(self)` opens the tool for me
if I want to see more than right or wrong; I close it before I open it again. Refusals come last: a wrong argument must
raise a ValueError and change nothing.

What could go wrong? A result of the wrong type, "3" for 3, fails its case. And the cases that I see are not all: I
write what the requirements say, not what makes these cases pass.

How does it end? When no case that I see fails, and the task's evaluations are all true, my action calls
`self.return_to_caller({"tool": spec.name})`.

So now I set up the subagent `main`, and write the frame: a class that opens and closes and shows a line.
"""


def action_set_up_and_write_the_frame(self):
    what = f"Write the tool {spec.name} in {FILE}"
    main = agent.subagent("main", None, what, {"tool": "string"}, args.budget)
    main.task.add_evaluation(
        "Does the tool open, show its state and close as tools do?",
        is_window_right,
        protected=True,
        files=["my_tool.py"],
    )
    main.task.add_evaluation(
        "Do its methods give the right results?", are_methods_right, protected=True, files=["my_tool.py"]
    )
    main.task.add_evaluation(
        "Does it refuse wrong arguments with a ValueError?", are_refusals_right, protected=True, files=["my_tool.py"]
    )
    WeaveEditor(main, FILE).append(FRAME)
    main.add_observation_view("Requirements", view_requirements)
    tool = try_tool(main, *shown_cases("window")[0].arguments)
    assert main.tools[spec.key] is tool, "Is the tool open under its key?"
    tool.close()
    assert spec.key not in main.tools, "Has it closed again?"
    return f"cases of windows that fail: {len(failing('window'))}"


def passes(group):
    """Whether the saved file passes hidden cases of a group, in a process that can only compute."""
    hidden = random.Random(case_seed)
    found = [case for _ in range(4) for case in tool_tasks.cases(spec, group, hidden)]
    return all(tool_tasks.grade(spec, tool_text(), found))


def is_window_right(self):
    return passes("window")


def are_methods_right(self):
    return passes("methods")


def are_refusals_right(self):
    return passes("refusals")


self.add_action("Set up the main agent and write the frame of the tool", action_set_up_and_write_the_frame)

"""
If this has worked, the editor shows a class with a constructor and `render`, and the requirements view says that cases
of every group fail, since no method is there yet.
"""


def eval_only_the_frame_is_there(self):
    return spec.name in tool_text() and len(failing("methods")) == len(shown_cases("methods"))


self.add_evaluation("Is the frame of the tool there, with its methods to be written?", eval_only_the_frame_is_there)
