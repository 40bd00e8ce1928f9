"""The task: with the editor nano, make a file equal to a given text.

The file /app/practice.txt holds the text with faults in it: words misspelt, lines lost, doubled, swapped or not
belonging there. Parameters: {"text": "ferry"} chooses the text (ferry, bread or clock; else chance does), and
{"faults": 9} says how many faults are put in.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import difflib
import random

from tools.nano import WeaveNano

TEXTS = {
    "ferry": """\
The ferry leaves at six, before the fog has lifted.
Two cyclists stand at the railing and share a thermos.
Nobody speaks while the engine is warming up.
Halfway across, the captain sounds the horn once.
It is for his mother, who lives on the hill.
She has never waved back, and she has never missed it.
On the far side the gate opens with a groan.
The baker's van is always first in line.
Its driver has the rolls still warm beside him.
He throws one up to the bridge, and it is caught.
The cyclists push their wheels up the ramp.
One of them has forgotten her gloves on board.
She will get them back tomorrow, they all come back.
The horn sounds again, shorter this time.
By seven the boat is on its way again.""",
    "bread": """\
Mix the flour, the water and a little salt.
Leave the dough alone for half an hour.
Fold it four times, like a letter.
Cover the bowl, and forget it until evening.
Shape a round loaf with wet hands.
Heat the oven as far as it will go.
Bake under a lid for twenty minutes.
Take the lid off, and wait for the crust.
It is done when it sounds hollow from below.
Let it cool before you cut it, if you can.
The first slice is for whoever made the dough.
Wrap what is left in a cloth, not in plastic.
On the third day it makes the best toast.
On the fifth, cut it into cubes for the soup.
Keep a spoonful of dough for the next loaf.""",
    "clock": """\
To stop the clock, open the narrow door first.
Hold the pendulum at its lowest point.
Lift the weights off, the left one last.
Write the time on the card behind the dial.
Oil the three pins with one drop each.
Hang the weights back in their old order.
Set the hands forward, never backward.
Wait at each full hour until it has struck.
A push to the left, and it walks again.
Listen for a minute with your eyes closed.
An even beat means that the case stands level.
A limping beat wants a coin under one foot.
Close the door, and turn the small key twice.
Hang it on the nail where children can't reach.
Come back on Sunday to pull the weights up.""",
}
FILE = "/app/practice.txt"
name = args.params.get("text") or random.choice(sorted(TEXTS))
target = TEXTS[name].split("\n")


def damaged(lines, faults):
    """The lines with so many faults put in."""
    lines = list(lines)
    for fault in random.choices(("misspell", "lose", "double", "swap", "stray"), k=faults):
        at = random.randrange(len(lines) - 1)
        if fault == "misspell":
            words = lines[at].split(" ")
            longest = max(range(len(words)), key=lambda number: len(words[number]))
            words[longest] = words[longest][::-1]
            lines[at] = " ".join(words)
        elif fault == "lose" and len(lines) > 4:
            del lines[at]
        elif fault == "double":
            lines.insert(at, lines[at])
        elif fault == "swap":
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        else:
            lines.insert(at, "This line is from another page.")
    return lines


def written():
    """The lines of the file as it was saved last."""
    with open(FILE, errors="replace") as file:
        return file.read().split("\n")[:-1]


def changes():
    """What has to change in the file: (first line, lines to cut there, lines to type there), from the top."""
    matcher = difflib.SequenceMatcher(None, written(), target, autojunk=False)
    return [(a + 1, b - a, target[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def similarity():
    """1 if the file is equal to the text, 0 if they have nothing in common."""
    return round(difflib.SequenceMatcher(None, "\n".join(written()), "\n".join(target)).ratio(), 3)


def view_differences(self):
    """How the saved file differs from the text."""
    places = changes()
    if not places:
        return "The saved file is equal to the text. Nothing is left to do but to return."
    lines = [f"Places where the saved file differs from the text: {len(places)}. Similarity: {similarity()}."]
    for first, count, new in places:
        old = written()[first - 1 : first - 1 + count]
        lines += [f"At line {first}:", *(f"- {line}" for line in old), *(f"+ {line}" for line in new)]
    return "\n".join(lines)


"""
I'm about to practise with nano. The difference view says at which line the saved file and the text part, which
lines have to go (-) and which have to come (+). What do I need? `nano = self.tools["nano"]`, and its keys:

"C-_", a number, "Enter" goes to the beginning of a line; "C-k" cuts the line under the cursor, and what is below
moves up; typing inserts before the cursor, and "Enter" ends the line; "C-o", "Enter" saves. What is not saved does
not count: "Modified" in the top line of the screen means that something isn't.

Line numbers change with every line that comes or goes. So I mend one place in a tick, and look again. When the
view says that they are equal, my action calls `self.return_to_caller({"similarity": similarity()})`.

Now I set everything up, and mend the first place, to see that it works.
"""


def action_set_up_and_mend_one_place(self):
    what = f"With nano, make {FILE} equal to the text that the difference view compares it with"
    main = agent.subagent("main", None, what, {"similarity": "number"}, args.budget)
    main.task.add_evaluation(
        "Is the saved file equal to the text?", file_is_equal, protected=True, files=["practice.txt"]
    )
    with open(FILE, "w") as file:
        file.write("\n".join(damaged(target, int(args.params.get("faults", 9)))) + "\n")
    nano = WeaveNano(main, FILE)
    main.add_observation_view("Differences", view_differences)
    before = changes()
    for first, count, new in before[:1]:
        nano.send_commands(["C-_", str(first), "Enter", *["C-k"] * count])
        for line in new:
            nano.send_commands([line, "Enter"])
        nano.send_commands(["C-o", "Enter"])
    assert not before or len(changes()) < len(before), "Are there fewer places to mend than before?"
    return f"{len(before)} places to mend before, {len(changes())} now"


def file_is_equal(self):
    return written() == target


self.add_action("Set the practice up and mend the first place", action_set_up_and_mend_one_place)

"""
If this has worked, nano shows the file without "Modified" in its top line, and the difference view no longer lists
the place that came first.
"""


def eval_everything_is_saved(self):
    return "Modified" not in agent.agents["main"].tools["nano"].pane.capture_pane()


self.add_evaluation("Has nano saved all that was typed?", eval_everything_is_saved)
