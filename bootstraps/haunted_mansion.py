"""The task: write a haunted mansion story in a file, with a visit to several rooms and an end.

How long it must be, in words, and how many rooms the visitor must enter, is set by the parameters, such as
{"words": 400, "rooms": 4}. Whether it is any good, I ask the model, which is asked in my callbacks.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import re

from tools.editor import WeaveEditor

from bootstraps.params import read_params

ROOMS = ["hall", "library", "kitchen", "cellar", "attic", "nursery", "chapel", "conservatory"]
STORY = os.path.abspath("story.txt")
END = "The End"

least_words, least_rooms = read_params(args.params, words=(400, range(50, 5001)), rooms=(4, range(1, 9)))


def get_story():
    """The story as it stands in its file."""
    with open(STORY) as file:
        return file.read()


def story_words():
    return len(get_story().split())


def rooms_visited():
    """The rooms of ROOMS that the story names."""
    return [room for room in ROOMS if re.search(rf"\b{room}\b", get_story(), re.IGNORECASE)]


def story_editor(self):
    """The editor of the story; `story_editor(self).append("A new line.")` goes on with it."""
    return self.tools[f"editor-{STORY}"]


def quality():
    """The probability that this is a good story, by the model's answers to questions about it."""
    parent = "Is this a good haunted mansion story?"
    questions = [
        "Does one scene of the story lead to the next?",
        "Is something in the story left unseen, and the more frightening for it?",
        "Does the story come to an end that follows from its beginning?",
    ]
    return simple_bayes_evaluate_outputs(parent, questions, [get_story()])[0].item()


def view_progress(self):
    """What the story has and what it still lacks."""
    visited = rooms_visited()
    return "\n".join(
        [
            f"Words: {story_words()} of {least_words}",
            f"Rooms: {len(visited)} of {least_rooms} ({', '.join(visited)})",
            f"Not entered yet: {', '.join(room for room in ROOMS if room not in visited) or 'none'}",
            f"Ended: {'yes' if is_ended(self) else 'no'}",
        ]
    )


"""
I'm about to write a story. What do I know? It needs a certain length, a number of rooms, and a last line that
reads "The End". These I can count, and the view does so. It should also be frightening, and that I can't count;
the task's evaluations ask the model about it.

What makes such a story work? One visitor, one house, one question that pulls both onward: here, who has laid the
table for two. Each paragraph enters one room, finds one thing there that should not be there, and leaves by a door
that leads on. What the house wants is told last. A paragraph of sixty to a hundred words is enough for one action:
`story_editor(self).append("...")`. I break it into lines of a sentence or two, because the editor shows no more
than 400 characters of a line, and because a weak sentence can then be replaced with `edit`.

How does it end? With everything that the view asks for in the file, my action calls
`self.return_to_caller({"words": story_words(), "rooms": len(rooms_visited()), "quality": quality()})`.

So now I set up the subagent `main`, open the editor and write the title and the first paragraph, in the hall.
"""


def action_set_up_and_begin(self):
    schema = {"words": "integer", "rooms": "integer", "quality": "number", "is_long_enough": "boolean"}
    main = agent.subagent("main", None, "Write a haunted mansion story in story.txt", schema, args.budget)
    main.task.add_evaluation(f"Does the story have {least_words} words or more?", is_long_enough)
    main.task.add_evaluation(f"Does the visitor enter {least_rooms} rooms or more?", is_visiting_enough)
    main.task.add_evaluation("Does the story end with a line that reads The End?", is_ended)
    main.task.add_evaluation("Would the story frighten a reader who is alone at night?", is_frightening)
    main.task.add_evaluation("Is this a good haunted mansion story?", is_good)
    main.add_observation_view("Progress", view_progress)
    editor = WeaveEditor(main, STORY)
    editor.append("The Second Place at the Table\n\n")
    editor.append(
        "The solicitor had given her one night to list the furniture, and one key, which was warm.\n"
        "In the hall somebody had lit the fire. Two places were laid at the long table, with the good silver,\n"
        "and the soup in one of the plates had just been stirred.\n"
        "Adela called, and heard her voice go up the stairs and turn a corner there, as though it knew the way.\n"
        "Nobody answered. Yet the chair across from hers was drawn back a little, politely, by an inch.\n"
    )
    assert "hall" in rooms_visited(), "Does the story enter the hall?"
    assert story_words() > 50, "Has the first paragraph reached the file?"
    return f"{story_words()} words"


def is_long_enough(self):
    return story_words() >= least_words


def is_visiting_enough(self):
    return len(rooms_visited()) >= least_rooms


def is_ended(self):
    return get_story().rstrip().endswith("\n" + END)


def is_frightening(self):
    ask = make_simple_score_prompt("Would this story frighten a reader who is alone at night?")
    return simple_evaluate_outputs(ask, [get_story()])[0] > 0.5


def is_good(self):
    return quality() > 0.5


self.add_action("Set up the main agent and write the first paragraph", action_set_up_and_begin)

"""
If this has worked, the story's file has a title and one paragraph, the view counts some eighty words and one
room, and the story has not ended. The model may well say no to it, since it has hardly begun.
"""


def eval_story_has_begun(self):
    return rooms_visited() == ["hall"] and not is_ended(self)


self.add_evaluation("Has the story begun in the hall, with its end still open?", eval_story_has_begun)
