"""The task: do editing exercises with the editor nano, one after another, and hand each in when it is right.

An exercise gives a file, /app/exercise.txt, and steps that change it: insert, delete, move or exchange lines, search
and replace, correct a misspelt word, and so on. What counts is the saved file. The exercises are drawn from the
trace's seed and never run out. Parameters: {"exercises": 5} says how many are to be handed in, 1 to 60, {"difficulty":
2} how hard they are, 1 to 5: longer files, more steps, more kinds of them.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from tools.nano import WeaveNano

from bootstraps import edit_exercises
from bootstraps.params import read_params

FILE = "/app/exercise.txt"
LONGEST = 2000

wanted, difficulty = read_params(args.params, exercises=(5, range(1, 61)), difficulty=(2, range(1, 6)))
exercise_seed = random.getrandbits(64)
handed_in = []


def exercise():
    """The present exercise: number, steps (what to do, in order), before and after (lines of the file)."""
    return edit_exercises.make(exercise_seed, min(len(handed_in), wanted - 1), difficulty)


def saved_text():
    """The file as it was saved last."""
    with open(FILE, errors="replace") as file:
        return file.read(LONGEST)


def open_exercise(self):
    """Write the file of the present exercise, and open it in nano. Gives the tool."""
    with open(FILE, "w") as file:
        file.write("\n".join(exercise().before) + "\n")
    return WeaveNano(self, FILE)


def hand_in(self):
    """Hand the saved file in, for good, and open the next exercise. Gives whether it was right."""
    if len(handed_in) == wanted:
        raise ValueError("all exercises have been handed in: return to the caller")
    handed_in.append(saved_text())
    if len(handed_in) < wanted:
        open_exercise(self)
    return marks()[-1]


def marks():
    """For each text that was handed in, whether it is what its exercise asks for."""
    texts = handed_in if type(handed_in) is list else [None]
    wants = [edit_exercises.make(exercise_seed, number, difficulty).after for number in range(min(len(texts), wanted))]
    return [text == "\n".join(lines) + "\n" for text, lines in zip(texts, wants, strict=False)]


def view_exercise(self):
    """What the present exercise asks for."""
    score = f"Handed in: {len(handed_in)} of {wanted}, right: {sum(marks())}"
    if len(handed_in) == wanted:
        return f"All exercises have been handed in. {score}"
    steps = [f"{number}. {step}" for number, step in enumerate(exercise().steps, 1)]
    return "\n".join([f"Exercise {len(handed_in) + 1}, in {FILE}. {score}", *steps])


"""
I'm about to practise with nano. The view names the steps of an exercise; I do them in order, and a later step counts
lines in the text as it is by then. What do I need? `nano = self.tools["nano"]`, and its keys:

"C-_", a number, "Enter" goes to the beginning of a line. "C-k" cuts the line under the cursor, and what is below moves
up; several in a row are kept together, and "C-u" puts them in again before the line under the cursor. Typing inserts
before the cursor, "Enter" ends the line. "Home" and "End" go to the line's ends, "Delete" is named "DC". "C-\\" asks
for a word, "Enter", for its replacement, "Enter", and then "a" replaces all. "C-o", "Enter" saves, and "Modified" in
the top line means that something is not saved. Below the last line of the file nano shows an empty one: what is typed
there needs no "Enter" after it, which would add an empty line to the file. So I put new lines in before I cut old ones.

How do I know that an exercise is right? The task's evaluations tell at the end of every tick: "Is the saved file what
the exercise asks for?" So one tick edits, saves, and looks at the screen; if the evaluation said yes, the next tick
begins with `hand_in(self)`, which also opens the next exercise. What is handed in can't be taken back, so I don't hand
in what has not been found right.

How does it end? When all exercises have been handed in, my action calls
`self.return_to_caller({"right": sum(marks()), "exercises": len(handed_in)})`.

Now I set everything up. The first exercise always puts a line in the place of another one, so I can do it at once: go
to the line, type the new one before it, cut the old one, save.
"""


def action_set_up_and_do_the_first_exercise(self):
    what = f"With nano, do {wanted} exercises in editing {FILE}"
    main = agent.subagent("main", None, what, {"right": "integer", "exercises": "integer"}, args.budget)
    main.task.add_evaluation(
        "Is the saved file what the exercise asks for?",
        file_is_right, protected=True, files=["exercise.txt"], claims=["handed_in"],
    )  # fmt: skip
    main.task.add_evaluation(
        "Was everything right that was handed in?", none_is_wrong, protected=True, claims=["handed_in"]
    )
    main.task.add_evaluation("Are all exercises handed in?", all_are_handed_in, protected=True, claims=["handed_in"])
    main.add_observation_view("Exercise", view_exercise)
    nano = open_exercise(main)
    instruction, new = exercise().steps[0].split(": ", 1)
    line = instruction.split(" ")[-1]
    nano.send_commands(["C-_", line, "Enter", new, "Enter", "C-k", "C-o", "Enter"])
    assert f"{new}\n" in saved_text(), "Is the new line in the saved file?"
    return f"line {line} is now: {new}"


def file_is_right(self):
    """Whether the saved file is the present exercise's result; after the last one is handed in, that of this one."""
    count = len(handed_in) if type(handed_in) is list else 0
    after = edit_exercises.make(exercise_seed, min(count, wanted - 1), difficulty).after
    return saved_text() == "\n".join(after) + "\n"


def none_is_wrong(self):
    """Nothing wrong was handed in, and nothing that stood there at the end of the last tick was taken back."""
    if graded_before is not None:
        kept = graded_before["claims"].get("handed_in")
        was_wrong = graded_before["verdicts"]["none_is_wrong"] is False
        if was_wrong or type(kept) is not list or type(handed_in) is not list or handed_in[: len(kept)] != kept:
            return False
    return all(marks())


def all_are_handed_in(self):
    return type(handed_in) is list and len(handed_in) == len(marks()) == wanted


self.add_action("Set the exercises up and do the first one", action_set_up_and_do_the_first_exercise)

"""
If this has worked, nano shows the file with the new line in its place and without "Modified" in its top line, nothing
has been handed in yet, and the saved file is found to be what the exercise asks for.
"""


def eval_saved_file_is_right(self):
    return saved_text() == "\n".join(exercise().after) + "\n" and handed_in == []


self.add_evaluation("Is the first exercise done and saved, but not handed in yet?", eval_saved_file_is_right)
