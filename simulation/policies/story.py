"""The policy for bootstraps/haunted_mansion.py and mars_colony.py, and its opinion about texts.

Paragraphs are composed of the sentences below. Stories are judged by length, end and repetition.
"""

import random
import re
from functools import lru_cache

from simulation.policies import judge, plan
from simulation.policies.draft import Callback, draw_flaw
from simulation.policies.plan import Plan, literal, shown
from simulation.policies.situation import Situation, stable

PARAGRAPHS = {"repeats": 0.1, "short": 0.08}
"""Errors per paragraph: it says the same thing twice; it stops after two sentences."""
ENTRIES = {"wrong_sum": 0.1, "no_event": 0.1, "short": 0.1}
"""Errors per entry of the log: one of the stores is wrong; the event is not mentioned; it stops early."""
WHOLE = {"story": 300, "log": 300, "report": 150, "entry": 60}
"""Number of words from which a text of this kind counts as complete."""

_TASK = re.compile(r'^"""The task: write (?:a haunted mansion story|the log of a small colony on Mars)', re.MULTILINE)
_ASKED = re.compile(r"\b(entry|report|story|log)\b")
_GIVEN = re.compile(r"\? (Yes|No)\.\n#q: [^\n]*$")
_NEWEST = "The newest entry of the log:\n"
_PROGRESS = re.compile(
    r"^Words: (\d+) of (\d+)\nRooms: (\d+) of (\d+) .*\nNot entered yet: (.*)\nEnded: (yes|no)$", re.MULTILINE
)
_COLONY = re.compile(
    r"^Entry (\d+) of \d+ is due: (.*)\. It should have the word '(.*)'\.\n"
    r"Stores: water (\d+), oxygen (\d+), food (\d+)\nChange: water (\S+), oxygen (\S+), food (\S+)$",
    re.MULTILINE,
)
_COMPLETE = re.compile(r"^The log is complete: (\d+) entries", re.MULTILINE)
_STORES = re.compile(r'stores = \{"water": (\d+), "oxygen": (\d+), "food": (\d+)\}')


def knows(situation: Situation) -> bool:
    """Whether the trace's bootstrap is one of the two, or a callback asks about a story, a log or a report."""
    if not situation.type:
        return situation.question is not None and bool(_ASKED.search(situation.question))
    return bool(_TASK.search(situation.prompt))


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    if found := shown(situation, _PROGRESS):
        now = _mansion(found)
    elif found := shown(situation, _COLONY):
        now = _colony(found)
    else:
        complete = shown(situation, _COMPLETE)
        now = _LOOK if complete is None else _log_complete(int(complete[1]))
    return plan.write(now, situation, seed, number)


def _returns(lines: tuple[str, ...], what: str) -> Plan:
    return Plan(
        seen=f"The view says that {what} is complete.",
        step="return to the caller with what the schema asks for",
        action=lambda chance, _: Callback(
            "action", "return_to_the_caller", lines, chance.choice(["Return to the caller", f"Hand {what} over"])
        ),
        evaluation=Callback("evaluation", "task_completed", ("return self.completed",), "Is the task completed?"),
        evidence="If the caller has taken it, this subagent counts as completed.",
    )


# ------------------------------------------------------------------------------------------ the mansion


def _mansion(found: re.Match[str]) -> Plan:
    words, least_words, rooms, least_rooms = map(int, found.groups()[:4])
    left = [] if found[5] == "none" else found[5].split(", ")
    if found[6] == "yes":
        return _returns(
            (
                "words, rooms = story_words(), len(rooms_visited())",
                f'assert words >= {least_words}, "Is the story long enough?"',
                f'assert rooms >= {least_rooms}, "Does it enter enough rooms?"',
                'self.return_to_caller({"words": words, "rooms": rooms, "quality": quality()})',
                "return words",
            ),
            "the story",
        )
    is_last = words >= least_words and rooms >= least_rooms

    def action(chance: random.Random, _: str) -> Callback:
        if is_last:
            lines, name, title = [*_compose(chance, _MANSION_END), "", "The End"], "end_the_story", "End the story"
            check = 'assert is_ended(self), "Is the last line The End?"'
        else:
            room = chance.choice(left or list(_FOUND))
            lines = _slip(_compose(chance, _MANSION, room=room, found=chance.choice(_FOUND[room])), chance)
            name, title = f"enter_the_{room}", f"Let the visitor enter the {room}"
            check = f'assert "{room}" in rooms_visited(), "Does the story now enter the {room}?"'
        text = literal("\n" + "\n".join(lines) + "\n")
        body = ("before = story_words()", f"story_editor(self).append({text})", check, "return story_words() - before")
        return Callback("action", name, body, title)

    return Plan(
        seen=f"The story has {words} of {least_words} words and {rooms} of {least_rooms} rooms.",
        step="write the end, in which the house says what it wants" if is_last else "let the visitor go on a room",
        action=action,
        evaluation=Callback(
            "evaluation", "story_has_grown", (f"return story_words() > {words}",), "Has the story grown?"
        ),
        evidence=f"If the paragraph is in the file, the view counts more than {words} words.",
    )


def _compose(chance: random.Random, pools: tuple[tuple[str, ...], ...], **names: str) -> list[str]:
    return [chance.choice(pool).format(**names) for pool in pools]


def _slip(lines: list[str], chance: random.Random) -> list[str]:
    slip = draw_flaw(chance, PARAGRAPHS)
    return lines[:2] if slip == "short" else [*lines, lines[0], lines[1]] if slip == "repeats" else lines


_FOUND = {
    "hall": ("the fire had been fed", "a third plate had been set, a child's"),
    "library": ("all the books stood with their spines to the wall", "a ladder still swayed on its rail"),
    "kitchen": ("the knives were laid out by size, and one was missing", "the kettle had come to the boil"),
    "cellar": ("the dust on the steps showed bare feet that only went down", "one barrel breathed"),
    "attic": ("forty portraits hung face to the rafters", "a rocking chair was slowing down"),
    "nursery": ("the doll's house was lit, and a doll sat at its long table", "the cradle had been warmed"),
    "chapel": ("the hymn board showed today's date", "the candles smoked, as if just blown out"),
    "conservatory": ("every plant leaned toward the door", "the glass was wet on the inside with hand marks"),
}
_MANSION = (
    (
        "The next door was that of the {room}, and it opened before she touched it.",
        "She came into the {room} with the lamp held low.",
        "There was only one way on, through the {room}.",
        "The key turned by itself in the lock of the {room}.",
    ),
    (
        "At first she saw nothing wrong with it; then she saw that {found}.",
        "It took her a moment to understand what she was looking at: {found}.",
        "She wrote down four chairs and a clock, and stopped, because {found}.",
        "Nobody could have been here, and yet {found}.",
    ),
    (
        "Adela told herself that old houses settle, and that settling makes a sound like a name.",
        "Somewhere below her a chair was drawn back, politely, by another inch.",
        "She counted her own breaths, and there was one too many.",
        "Her lamp bent to one side, away from nothing that she could see.",
        "The silence had the shape of somebody who waits for you to finish speaking.",
    ),
    (
        "On the list in her hand a line had been added in brown ink, and it was her handwriting.",
        "She thought of the warm key, and of how long a hand must hold a key to warm it.",
        "Under the dust on the mantelpiece somebody had drawn a table and two small figures.",
        "The wallpaper was worn at the height of a shoulder, all along, on both sides.",
    ),
    (
        "She said aloud that she would be gone by morning, and the house seemed to think about it.",
        "When she turned round, the way back had become shorter by a door.",
        "So she went on, since what was behind her had begun to go on too.",
        "The soup, she remembered, had been stirred a moment before she came in.",
        "Far away the spoon touched the plate, once, as one does to call a guest.",
    ),
)
_MANSION_END = (
    (
        "In the end every door led back to the long table, and this time the other chair was taken.",
        "At the last door she knew already which room it would be, and who would be sitting there.",
    ),
    (
        "It was not a face that she could have described to the solicitor, but it was pleased.",
        "Across from her plate sat a patience so old that it had forgotten how to be a person.",
    ),
    (
        "All it wanted was not to dine alone, and it had wanted that for a hundred and ten years.",
        "It asked for nothing but her company, and it asked in the voice that had gone up the stairs.",
    ),
    (
        "Adela sat down, because it had waited, and because the soup was hot.",
        "Adela looked at the door, and then, since there was none, she unfolded the napkin.",
    ),
    (
        "In the morning the solicitor found the furniture listed without an error, and three places laid.",
        "The list was found on the mat next day, complete, with one more chair than the house had owned.",
    ),
)

# ------------------------------------------------------------------------------------------- the colony


def _colony(found: re.Match[str]) -> Plan:
    due, what, word = int(found[1]), found[2], found[3]
    before = [int(amount) for amount in found.groups()[3:6]]
    right = _after(found)

    def action(chance: random.Random, failed: str) -> Callback:
        slip = None if failed else draw_flaw(chance, ENTRIES)
        told = _compose(chance, _COLONY_TEXT, what=what, word="it" if slip == "no_event" else f"the {word}")
        if slip == "no_event":
            told[0] = "Much has happened since the last entry."
        elif slip == "short":
            del told[2:]
        stores = list(right)
        if slip == "wrong_sum":
            stores[chance.randrange(3)] += chance.choice([-10, -1, 1, 10])
        call = f'file_entry(self, "{chance.choice(_TITLES).format(word=word)}", text, stores)'
        lines = (
            f"text = {literal(' '.join(told))}",
            f'stores = {{"water": {stores[0]}, "oxygen": {stores[1]}, "food": {stores[2]}}}',
            *plan.unless_done(f"len(get_entries(self)) < {due}", call, failed),
            f'assert len(get_entries(self)) == {due}, "Has entry {due} been filed?"',
            "return as_line(stores_before(self))",
        )
        return Callback("action", f"file_entry_{due}", lines, f"File entry {due} of the log")

    return Plan(
        seen=f"Entry {due} is due: {what}. Before it, water, oxygen and food stood at {before}.",
        step=f"work out the stores after it, tell it, and file entry {due}",
        action=action,
        evaluation=Callback(
            "evaluation",
            "entry_is_filed",
            (f"return len(get_entries(self)) >= {due} and do_stores_add_up(self)",),
            f"Is entry {due} filed, with stores that add up?",
        ),
        evidence=f"If entry {due} has been filed, its stores are the last ones in log.md: {right}.",
    )


def _after(found: re.Match[str]) -> list[int]:
    """The stores after the event that the view shows."""
    return [int(found[4 + at]) + int(found[7 + at]) for at in range(3)]


def _log_complete(entries: int) -> Plan:
    return _returns(
        (
            "judged = judge_entries(self)",
            f'assert len(judged) == {entries}, "Has every entry been judged?"',
            "convincing = sum(judged) / len(judged)",
            "stores = stores_before(self)",
            f'self.return_to_caller({{"entries": {entries}, "stores": stores, "convincing": convincing}})',
            "return round(convincing, 3)",
        ),
        "the log",
    )


_LOOK = Plan(
    seen="The views show nothing that I can read.",
    step="look at the stores before I do anything else",
    action=lambda _, __: Callback(
        "action",
        "look_at_the_views",
        ("count = len(self.observation_views)", 'assert count > 0, "Is there a view?"', "return count"),
        "Count the views",
    ),
    evaluation=Callback("evaluation", "views_exist", ("return len(self.observation_views) > 0",), "Is there a view?"),
    evidence="If it worked, the outcome has the number of views.",
)
_TITLES = ("The {word}", "After the {word}", "What the {word} cost", "A long sol")
_COLONY_TEXT = (
    (
        "This is how it was: {what}.",
        "We had thought ourselves prepared, and then {what}.",
        "Between the noon check and the next one {what}.",
    ),
    (
        "Okoro heard of it in the airlock, with one boot on, and gave her orders from there.",
        "Sato was nearest to {word}, and for once he had nothing to say about it.",
        "It was Lind who noticed first, since the numbers in her book no longer agreed.",
        "The alarm went at four, and by a quarter past all six of us stood in the corridor.",
    ),
    (
        "For two hours nobody spoke but to read out a pressure or to ask for a clamp.",
        "We drew lots for who would go outside, and the two who lost went without a word.",
        "Sato took the heater out of the workshop and put it where it was needed more.",
        "The greenhouse was shut first, and then the long table was cleared for the parts.",
    ),
    (
        "Afterwards Lind counted the tanks twice and wrote down the smaller of the two results.",
        "Lind went through the stores with a lamp and a pencil, and did not like what she wrote.",
        "What it did to the stores Lind told us at supper, before anybody had reached for seconds.",
    ),
    (
        "We shall wash once a week from now on, and the plants drink before we do.",
        "Okoro has moved the evening meal forward, so that we are asleep when we would be hungry.",
        "Sato says that the seal will hold until spring, and has put his bunk beside it.",
        "Nobody mentions the ship, which is the surest sign that all of us think of it.",
    ),
    (
        "Tonight the wind has dropped, and {word} is all that we talk about.",
        "I write this by the light of the pump's lamp, to save the other one.",
        "When I have filed this I shall sleep, and Lind will take the watch.",
    ),
)

# --------------------------------------------------------------------------------------------- judging


def log_odds(situation: Situation) -> float:
    """For a story by its qualities; for a block as for any other, minus a cost if a wrong sum is noticed."""
    if not situation.type:
        return _opinion(situation)
    odds = judge.log_odds(situation)
    if situation.type == "action" and (stores := _STORES.search(situation.body)):
        found = shown(situation, _COLONY)
        if found and list(map(int, stores.groups())) != _after(found):
            odds -= 5.0 * judge.seen(situation.body)
    return odds


def _opinion(situation: Situation) -> float:
    question = situation.question or ""
    asked = _ASKED.search(question)
    text = situation.body.rpartition(_NEWEST)[2]
    worth = quality(text, WHOLE[asked[1]] if asked else 100)
    odds = worth + stable(text + question, -0.7, 0.7)
    given = _GIVEN.search(situation.prompt.rstrip())
    # If a previous answer says that the text is good, a good text is rated higher, and a bad text lower.
    return odds + (0.0 if given is None else worth / 2 if given[1] == "Yes" else -worth / 2)


@lru_cache(maxsize=4096)
def quality(text: str, whole: int) -> float:
    """Log odds that a text is good: 2 if it has `whole` words and no repetition, -2 if it is almost empty."""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    words = " ".join(lines).split()
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(words))
    repeated = 1 - len(set(sentences)) / len(sentences)
    return 4.0 * min(len(words) / whole, 1.0) - 2.0 - 8.0 * repeated
