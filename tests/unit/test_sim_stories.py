"""The policies that write stories and read texts: what they do next, and what they think of a text."""

import re
from collections import Counter
from functools import partial

import pytest

from bootstraps import texts
from simulation import policies
from simulation.policies import judge, reader, story
from simulation.policies.situation import Situation, read
from weavegen.box import weave

MANSION = '"""The task: write a haunted mansion story in a file.\n"""\n'
MARS = '"""The task: write the log of a small colony on Mars, an entry at a time.\n"""\n'
REPORT = '"""The task: read a text from the first page to the last, and write a report.\n"""\n'
QUESTIONS = '"""The task: read a text and answer questions about it.\n"""\n'

PROGRESS = "Words: {words} of 200\nRooms: {rooms} of 2 (hall)\nNot entered yet: cellar\nEnded: {ended}"
COLONY = (
    "Entry 2 of 3 is due: the old water pump fails at night. It should have the word 'pump'.\n"
    "Stores: water 93, oxygen 88, food 91\nChange: water -16, oxygen -5, food +17"
)
PAGE = 'Page {page} of 2 of "A Walk":\n\n{text}'
TEXT = (
    "The path to the mill has forty steps of grey stone.\n\nOnly the miller's dog, Bran, ever counts them aloud."
)
READING = "Pages read: {read} of 2\nOwn words: {words} of 50\nPages quoted: {quoted}\n"
READING += "Quotes that do not stand in the text: {strange}"
ASKED = PAGE.format(page=1, text=TEXT)
ASKED += "\n\nQuestion 3: {question}\nPages searched for it: 1\nAnswered: 2 of 4, right: 1"
SCENE = "She opened door number {0} and found lamp number {0} lit on table number {0}, with nobody there."


def situation(
    task: str, *views: str, type: str = "action", prefix: str = "def action_", error: str = ""
) -> Situation:
    """A prompt with these views, up to the body of the block to come."""
    blocks = [("bootstrap", task)]
    blocks += [("observation", re.sub("^", "# ", view, flags=re.MULTILINE)) for view in views]
    blocks += [("error", f"# {error}")] * bool(error)
    before = "".join(f"#subagent main\n#startblock type: {type}\n{body}\n#endblock\n\n" for type, body in blocks)
    return read(f"{before}#subagent main\n#startblock type: {type}\n{prefix}")


def actions(*arguments: str, n: int = 40, **options: str) -> list[str]:
    now = situation(*arguments, **options)
    return ["def action_" + policies.write(now, 1, number) for number in range(n)]


def share(texts: list[str], part: str) -> float:
    return sum(part in text for text in texts) / len(texts)


def report(page: int, read: str, words: int, quoted: str, strange: str = "none") -> tuple[str, ...]:
    """The task and the views of a report."""
    progress = READING.format(read=read, words=words, quoted=quoted, strange=strange)
    return REPORT, PAGE.format(page=page, text=TEXT), progress


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ((MANSION, PROGRESS.format(words=93, rooms=1, ended="no")), "enter_the_cellar"),
        ((MANSION, PROGRESS.format(words=220, rooms=2, ended="no")), "end_the_story"),
        ((MANSION, PROGRESS.format(words=260, rooms=2, ended="yes")), "self.return_to_caller("),
        ((MARS, COLONY), 'stores = {"water": 77, "oxygen": 83, "food": 108}'),
        ((MARS, "The log is complete: 3 entries. Stores: water 1, oxygen 2, food 3"), "self.return_to_caller("),
        (report(1, "1", 9, "none (0 of 2)"), "turn_to(self, 2)"),
        (report(1, "1, 2", 60, "2 (1 of 2)"), "write_about_page_1"),
        (report(2, "1, 2", 60, "1, 2 (2 of 2)"), "self.return_to_caller("),
        (report(2, "1, 2", 60, "1, 2 (2 of 2)", "so"), "take_out_the_wrong_quote"),
        ((QUESTIONS, ASKED.format(question="How many steps has the path to the mill?")), 'answer(self, "forty")'),
        ((QUESTIONS, ASKED.format(question="How many boats lie in the harbour?")), "turn_to(self, 2)"),
        ((QUESTIONS, "All questions have been answered.\nAnswered: 4 of 4, right: 3"), "self.return_to_caller("),
    ],
)
def test_the_next_step_follows_from_the_views(views: tuple[str, ...], expected: str) -> None:
    assert share(actions(*views), expected) > 0.7


@pytest.mark.parametrize("type", ["orientation", "expectation", "debug", "backtrack", "evaluation"])
def test_other_blocks_are_about_the_same_step(type: str) -> None:
    prefix = "def eval_" if type == "evaluation" else '"""'
    now = situation(MARS, COLONY, type=type, prefix=prefix)
    found = [policies.write(now, 1, number) for number in range(20)]
    assert share(found, "entry") + share(found, "Entry") > 0.8
    assert found == [policies.write(now, 1, number) for number in range(20)]
    assert found != [policies.write(now, 2, number) for number in range(20)]


def test_slips_come_at_their_rates() -> None:
    found = actions(MARS, COLONY, n=600)
    told = [text for text in found if "stores = {" in text]
    wrong = 1 - share(told, '"water": 77, "oxygen": 83, "food": 108')
    assert wrong == pytest.approx(story.ENTRIES["wrong_sum"], abs=0.04)
    assert 1 - share(told, "pump ") == pytest.approx(story.ENTRIES["no_event"], abs=0.05)


def test_sums_are_right_at_the_second_attempt_and_wrong_ones_cost() -> None:
    found = actions(MARS, COLONY, n=100, error="ValueError: the stores of water do not follow")
    told = [text for text in found if "stores = {" in text]
    assert share(told, '"water": 77') == 1
    assert share(told, "if len(get_entries(self)) < 2:") > 0.9
    right = 'def action_x(self):\n    stores = {"water": 77, "oxygen": 83, "food": 108}\n'
    odds = [
        story.log_odds(situation(MARS, COLONY, prefix=f"{body}{tail}\n#q: Is this action right? "))
        - judge.log_odds(situation(MARS, COLONY, prefix=f"{body}{tail}\n#q: Is this action right? "))
        for tail in map("    # {}".format, range(20))
        for body in (right, right.replace("77", "76"))
    ]
    assert set(odds[::2]) == {0.0}
    assert Counter(odds[1::2]).keys() == {0.0, -5.0}, "some are noticed, some are overlooked"


def test_a_wrong_quote_is_taken_out_at_the_second_attempt() -> None:
    views = report(1, "1", 9, "none (0 of 2)")
    again = actions(*views, error="AssertionError: Does the quote stand in the text?")
    assert share(again, "editor.edit") > 0.7
    quoted = [found[1] for text in actions(*views, n=300) if (found := re.search('quote = "(.*)"', text))]
    wrong = sum(quote not in reader.sentences(TEXT) for quote in quoted) / len(quoted)
    assert wrong == pytest.approx(reader.QUOTES["misquoted"], abs=0.06)


@pytest.mark.parametrize("name", texts.names())
def test_half_of_the_questions_are_answered_right(name: str) -> None:
    right = 0
    for question in texts.questions(name):
        guesses = [reader.guess(page, question) for page in texts.pages(name)]
        word = next((word for word, sure, _ in guesses if sure >= reader.SURE), guesses[-1][0])
        right += texts.is_right(name, question, word)
    assert 5 <= right < 10


# --------------------------------------------------------------------------------------------- judging


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks' questions are answered by the simulation."""

    def ask(prompts: list[str]) -> list[tuple[float, float]]:
        answers = [policies.answer(read(prompt)) for prompt in prompts]
        return [(answer, 1 - answer) for answer in answers]

    monkeypatch.setattr(weave, "ask", ask)


def scenes(count: int) -> str:
    return "\n".join(SCENE.format(number) for number in range(count))


def test_a_story_is_judged_by_its_length_and_by_what_it_repeats(model: None) -> None:
    ask = weave.make_simple_score_prompt("Would this story frighten a reader?")
    begun, half, whole = weave.simple_evaluate_outputs(ask, [scenes(1), scenes(9), scenes(20)])
    assert begun < 0.3
    assert begun < half < whole
    assert whole > 0.7
    [again] = weave.simple_evaluate_outputs(ask, "\n".join([SCENE.format(1)] * 20))
    assert again < 0.1


def test_details_speak_for_a_good_story_and_against_a_bad_one(model: None) -> None:
    questions = ["Does one scene of the story lead to the next?", "Does the story come to an end?"]
    bad, good = weave.simple_bayes_evaluate_outputs("Is this a good story?", questions, [scenes(2), scenes(20)])
    assert bad < 0.2
    assert good > 0.8


def test_of_a_log_only_the_newest_entry_is_judged(model: None) -> None:
    template = "The log:\n\n{prompt}\n\nThe newest entry of the log:\n\n{response}\n\n#q: Is it told? No. (50%)\n"
    question = "#q: Does the newest entry follow from the log before it? "

    def judged(before: str, entry: str) -> float:
        ask = partial(weave.make_score_prompt_vllm, template, question, before)
        return weave.simple_evaluate_outputs(ask, before + entry)[0]

    assert judged(scenes(20), "Nothing.") < 0.3
    assert judged("", scenes(5)) > 0.6


def test_other_questions_are_left_to_the_others() -> None:
    assert not story.knows(read("A letter.\n#q: Is this letter polite? "))
    assert not story.knows(situation("# another task", COLONY))
    assert not reader.knows(situation("# another task", COLONY))
