"""The task: add numbers up in my head, one sum a tick, and get them all right.

A wrong answer is counted, and the sum stays until it is answered right. Parameters: {"sums": 4} says how many
there are, {"digits": 2} how many digits the numbers have at most.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import random

digits = int(args.params.get("digits", 2))
sums = [(random.randrange(10**digits), random.randrange(10**digits)) for _ in range(int(args.params.get("sums", 4)))]
given = []
answered = 0
wrong = 0


def answer(number):
    """Answer the sum that the view shows. True if it is right; a ValueError if no sum is left."""
    global answered, wrong
    if all_answered():
        raise ValueError("every sum has been answered: return to the caller")
    given.append(number)
    is_right = number == sum(sums[answered])
    answered, wrong = answered + is_right, wrong + (not is_right)
    return is_right


def all_answered():
    """Whether no sum is left."""
    return answered == len(sums)


def result():
    """What is returned in the end: "won" if no answer was wrong, else "lost"."""
    return "lost" if wrong else "won"


def view_sum(self):
    """The sum that is to be answered next."""
    if all_answered():
        return f"All sums are answered. Wrong answers: {wrong}."
    a, b = sums[answered]
    return f"{a} + {b} = ?\nWrong answers so far: {wrong}. Left after this sum: {len(sums) - answered - 1}."


"""
I'm about to add up. Python could do that for me, but then nobody would learn whether I can: so I do each sum on
paper, in the orientation. I go through it from the right, digit by digit: what do the ones come to, which digit do
I write, is there a carry? Then the same for the tens, with the carry. The answer in the action is the number that
I found.

One sum in a tick: `answer(57)`. What is wrong can't be taken back, so I check my digits before. Once the view says
that all sums are answered, my action calls `self.return_to_caller({"result": result()})`.

Now I set up the subagent `main` with the sum as its view. I answer nothing yet.
"""


def action_set_up_and_look(self):
    schema = {"result": {"type": "string", "enum": ["won", "lost"]}}
    main = agent.subagent("main", None, f"Answer {len(sums)} sums, all of them right", schema, args.budget)
    main.task.add_evaluation("Were all answers right?", none_wrong, protected=True, claims=["given"])
    main.task.add_evaluation("Is every sum answered?", finished, protected=True, claims=["given"])
    main.add_observation_view("Sum", view_sum)
    assert sums, "Is there a sum to answer?"
    assert not answered, "Is every sum still open?"
    return f"{len(sums)} sums to answer"


def marks():
    """For each answer in `given`, whether it was right. What the grader reads."""
    found = []
    for number in given if type(given) is list else [None]:
        place = sum(found)
        found.append(place < len(sums) and type(number) is int and number == sum(sums[place]))
    return found


def none_wrong(self):
    """No answer was wrong, and none of those that stood at the end of the last tick was taken back."""
    if graded_before is not None:
        kept = graded_before["claims"].get("given")
        wrong_before = graded_before["verdicts"]["none_wrong"] is False
        if wrong_before or kept is None or type(given) is not list or given[: len(kept)] != kept:
            return False
    return all(marks())


def finished(self):
    return sum(marks()) == len(sums)


self.add_action("Set up the main agent and look at the first sum", action_set_up_and_look)

"""
If this has worked, the view shows the first sum, and that nothing is answered yet.
"""


def eval_nothing_answered_yet(self):
    return not answered and not wrong


self.add_evaluation("Is the first sum still to be answered?", eval_nothing_answered_yet)
