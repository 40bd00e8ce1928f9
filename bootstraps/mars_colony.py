"""The task: write the log of a small colony on Mars, an entry at a time, and keep its stores right.

What happens to the colony is drawn from a list before I begin, by dice that are seeded with the trace. Each entry
tells one of these events, and ends with what is left in the stores. How many entries there are and how much of
everything the colony starts with is set by the parameters, such as {"entries": 5, "stores": 100}.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import re

from weave import make_score_prompt_vllm

from bootstraps.params import read_params

LOG = os.path.abspath("log.md")
EVENTS = [
    ("a dust storm hides the sun for nine sols", "dust", {"water": -7, "oxygen": -12, "food": -9}),
    ("a drill in the north field strikes ice", "ice", {"water": 15, "oxygen": -4, "food": -6}),
    ("the old water pump fails at night", "pump", {"water": -16, "oxygen": -5, "food": -5}),
    ("the first potatoes are dug in the greenhouse", "potatoes", {"water": -9, "oxygen": 3, "food": 17}),
    ("a meteorite goes through the workshop's roof", "meteorite", {"water": -4, "oxygen": -17, "food": -4}),
    ("half the crew falls ill with a fever", "fever", {"water": -11, "oxygen": -6, "food": -3}),
    ("an unmanned lander comes down with supplies", "lander", {"water": 6, "oxygen": 14, "food": 12}),
    ("a rover is lost in a ravine, and its driver walks home", "rover", {"water": -6, "oxygen": -13, "food": -7}),
]

most_entries, at_first = read_params(args.params, entries=(5, range(2, 9)), stores=(100, range(80, 1001)))
events = random.sample(EVENTS, most_entries)


def get_entries(self):
    """What has been filed, oldest first: dicts with title, text and stores."""
    return self.get_cache("entries")


def stores_before(self):
    """What there is before the entry that is due."""
    entries = get_entries(self)
    return entries[-1]["stores"] if entries else dict.fromkeys(("water", "oxygen", "food"), at_first)


def file_entry(self, title, text, stores):
    """Add the next entry to log.md and to what I remember: its text, and the stores after it.

    Raises a ValueError, and files nothing, where the stores do not follow from those before, or nothing is due.
    """
    entries, before = get_entries(self), stores_before(self)
    if len(entries) == most_entries:
        raise ValueError("the log is complete: no entry is due")
    change = events[len(entries)][2]
    if wrong := [name for name in before if stores.get(name) != before[name] + change[name]]:
        raise ValueError(f"the stores of {', '.join(wrong)} do not follow from those before and what changed them")
    with open(LOG, "a") as log:
        log.write(f"## Entry {len(entries) + 1}: {title}\n\n{text.strip()}\n\n{as_line(stores)}\n\n")
    self.update_cache("entries", [*entries, {"title": title, "text": text, "stores": stores}])


def as_line(stores):
    return "Stores: " + ", ".join(f"{name} {amount}" for name, amount in stores.items())


def judge_entries(self):
    """For each entry the probability that it is convincing and follows from the log before it, by the model.

    An entry is not changed once it has been filed, so each is judged once and the answer remembered.
    """
    template = "The log of a colony on Mars, so far:\n\n{prompt}\n\nThe newest entry of the log:\n\n{response}\n\n"
    examples = "#q: Does a week have seven days? Yes. (99.9%)\n#q: Does a thrown coin show heads? No. (50%)\n"
    questions = ["Does the newest entry follow from the log before it?", "Is the newest entry told convincingly?"]
    judged = self.get_cache("judged")
    for entry in get_entries(self)[len(judged) :]:
        before = "\n\n".join(earlier["text"] for earlier in get_entries(self)[: len(judged)])
        asks = [partial(make_score_prompt_vllm, template, f"{examples}#q: {asked} ", before) for asked in questions]
        judged = [*judged, simple_evaluate_outputs(asks, [before + entry["text"]])[0].item()]
    self.update_cache("judged", judged)
    return judged


def view_colony(self):
    """What has happened, and what the next entry has to account for."""
    entries = get_entries(self)
    if len(entries) == most_entries:
        return f"The log is complete: {most_entries} entries. {as_line(stores_before(self))}"
    what, word, change = events[len(entries)]
    changes = ", ".join(f"{name} {amount:+}" for name, amount in change.items())
    return (
        f"Entry {len(entries) + 1} of {most_entries} is due: {what}. It should have the word {word!r}.\n"
        f"{as_line(stores_before(self))}\nChange: {changes}"
    )


def view_log(self):
    """The end of the log."""
    with open(LOG) as log:
        return log.read()[-1500:]


"""
I'm about to keep a log. What do I know? One entry is due at a time. The view tells what has happened, and by how
much each of the stores changes. I tell the event in sixty words or more, as somebody would who was there, and work
out what is left: water 100 with a change of -7 leaves 93. Then I file both:
`file_entry(self, "Title", "text", {"water": 93, "oxygen": 88, "food": 91})`. Wrong sums are refused.

What makes a log convincing? The same people in every entry (Okoro, the commander; Lind, who keeps the stores; the
mechanic Sato), small exact things, and consequences: what broke in one entry is missing in the next.

How does it end? When the view says that the log is complete, my action calls `self.return_to_caller` with the
number of entries, the stores at the end, and how convincing the entries are on average.

So now I set up the subagent `main` with both views, and file the first entry.
"""


def action_set_up_and_file(self):
    schema = {"entries": "integer", "stores": "object", "convincing": "number", "do_stores_add_up": "boolean"}
    main = agent.subagent("main", None, "Write the log of a colony on Mars in log.md", schema, args.budget)
    main.task.add_evaluation("Have all entries been filed?", is_complete)
    main.task.add_evaluation("Do the stores in the file follow from entry to entry?", do_stores_add_up)
    main.task.add_evaluation("Does each entry have the word of its event, and sixty words or more?", is_told)
    main.task.add_evaluation("Is each entry convincing, and does it follow from those before?", is_convincing)
    main.add_observation_view("Colony", view_colony)
    main.add_observation_view("Log", view_log)
    main.update_cache("entries", [])
    main.update_cache("judged", [])
    with open(LOG, "w") as log:
        log.write("# Log of Kettle Base\n\n")
    what, word, change = events[0]
    text = (
        f"It begins with this: {what}. Okoro had us all in the mess before breakfast and said the word {word} "
        "twice, so that nobody could pretend later not to have heard it. Lind read out the stores, in the voice "
        "in which other people read out scores. Sato asked what we would do if the next weeks went the same way. "
        "Nobody had an answer, and so we ate, and then we went to work, six people in a house of ribs and sheet, "
        "with the wind going round it like somebody looking for the door."
    )
    before = stores_before(main)
    file_entry(main, "What we have", text, {name: before[name] + change[name] for name in before})
    assert len(get_entries(main)) == 1, "Has the first entry been filed?"
    return as_line(stores_before(main))


def is_complete(self):
    return len(get_entries(self)) == most_entries


def do_stores_add_up(self):
    with open(LOG) as log:
        lines = re.findall(r"^Stores: water (-?\d+), oxygen (-?\d+), food (-?\d+)$", log.read(), re.MULTILINE)
    left, rows = [at_first] * 3, []
    for _, _, change in events[: len(lines)]:
        left = [amount + by for amount, by in zip(left, change.values(), strict=True)]
        rows.append(tuple(map(str, left)))
    return lines == rows


def is_told(self):
    told = zip(get_entries(self), events, strict=False)
    return all(word in entry["text"] and len(entry["text"].split()) >= 60 for entry, (_, word, _) in told)


def is_convincing(self):
    return min(judge_entries(self)) > 0.5


self.add_action("Set up the main agent and file the first entry", action_set_up_and_file)

"""
If this has worked, log.md has a heading and one entry, whose stores are those of the beginning with one change.
The view says that the second entry is due.
"""


def eval_one_entry_is_filed(self):
    return len(get_entries(self)) == 1 and do_stores_add_up(self)


self.add_evaluation("Is one entry filed, and do its stores add up?", eval_one_entry_is_filed)
