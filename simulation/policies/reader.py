"""The policy for bootstraps/book_report.py and reading_comprehension.py: reads the page that the view shows.

It knows no text by heart. It looks for an answer in the sentence that shares most words with the question.
"""

import random
import re
from collections import Counter
from functools import lru_cache

from simulation.policies import generic, judge, plan
from simulation.policies.draft import Callback, compose, draw_flaw
from simulation.policies.plan import Plan, literal, shown
from simulation.policies.situation import Situation

QUOTES = {"misquoted": 0.12}
"""Errors per paragraph of a report: one word of the quote is wrong."""
ANSWERS = {"careless": 0.1}
"""Errors per answer: any word of the sentence."""
SURE = 0.5
"""Share of a question's words in one sentence from which on its answer is expected in this sentence."""

_TASK = re.compile(r'^"""The task: read a text (?:from the first page|and answer questions)', re.MULTILINE)
_PAGE = re.compile(r'^Page (\d+) of (\d+) of "(.*)":\n\n(.*?)(?:\n\nQuestion \d+: .*)?\Z', re.DOTALL | re.MULTILINE)
_REPORT = re.compile(
    r"^Pages read: (.*) of \d+\nOwn words: (\d+) of (\d+)\nPages quoted: (.*) \((\d+) of (\d+)\)\n"
    r"Quotes that do not stand in the text: (.*)$",
    re.MULTILINE,
)
_QUESTION = re.compile(r"^Question (\d+): (.*)\nPages searched for it: (.*)\nAnswered: (\d+)", re.MULTILINE)
_ALL_ANSWERED = re.compile(r"^All questions have been answered\.\nAnswered: (\d+)", re.MULTILINE)
_ONES = "one two three four five six seven eight nine ten eleven twelve"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER = re.compile(rf"(?:{'|'.join(_TENS.split())})(?:-\w+)?|{'|'.join(_ONES.split())}|\w+teen")
_COLOUR = re.compile("red|orange|yellow|green|blue|violet|purple|pink|brown|black|white|grey|golden|silver")
_ANY = re.compile(r"[a-z-]{4,}")
_NAME = re.compile("[A-Z][a-z]+")
_COMMON = (
    "a an and at by did does for from had has her his how in into is it its many of on or that the their there "
    "they this to was were what which who whom with word colour name down above below"
)
_PLAIN = frozenset(_COMMON.split())


def knows(situation: Situation) -> bool:
    """Whether the trace's bootstrap is one of the two."""
    return bool(situation.type) and bool(_TASK.search(situation.prompt))


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    page = shown(situation, _PAGE)
    if page and (report := shown(situation, _REPORT)):
        return plan.write(_report(page, report), situation, seed, number)
    if page and (question := shown(situation, _QUESTION)):
        return plan.write(_question(page, question), situation, seed, number)
    if all_answered := shown(situation, _ALL_ANSWERED):
        return plan.write(_return_answers(int(all_answered[1])), situation, seed, number)
    return generic.write(situation, seed, number)


def log_odds(situation: Situation) -> float:
    """As for any block."""
    return judge.log_odds(situation)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


_COMPLETED = Callback("evaluation", "task_completed", ("return self.completed",), "Is the task completed?")


# ------------------------------------------------------------------------------------------- the report


def _report(page: re.Match[str], report: re.Match[str]) -> Plan:
    here, count, words = int(page[1]), int(page[2]), int(report[2])
    quoted = _numbers(report[4])
    unread = [number for number in range(1, count + 1) if number not in _numbers(report[1])]
    enough = words >= int(report[3]) and int(report[5]) >= int(report[6])
    seen = f"I am at page {here} of {count}; the report has {words} words and quotes {len(quoted)} pages."
    grown = Callback("evaluation", "report_has_grown", (f"return own_words() > {words}",), "Has the report grown?")
    if report[7] != "none":
        return Plan(
            seen=f"{seen} A quote in it does not stand in the text.",
            step="take the wrong quote out again",
            action=lambda _, __: _TAKE_OUT,
            evaluation=Callback(
                "evaluation", "quotes_are_real", ("return strange_quotes() == []",), "Is every quote real?"
            ),
            evidence="If it worked, the list of quotes that do not stand in the text is empty.",
        )
    if enough and not unread:
        return Plan(
            seen=f"{seen} All pages are read.",
            step="return to the caller with the numbers that the schema asks for",
            action=lambda _, __: _RETURN_REPORT,
            evaluation=_COMPLETED,
            evidence="If the caller has taken it, this subagent counts as completed.",
        )
    unquoted = [number for number in range(1, count + 1) if number not in quoted]
    following = (unread or [number for number in unquoted if number != here] or [here])[0]
    if here in quoted and following != here:
        turn = ("before = self.get_cache('page')", f"turn_to(self, {following})")
        check = f'assert self.get_cache("page") == {following}, "Is page {following} shown?"'
        return Plan(
            seen=seen,
            step=f"turn to page {following}",
            action=lambda _, __: Callback(
                "action", f"turn_to_page_{following}", (*turn, check, "return before"), f"Turn to page {following}"
            ),
            evaluation=Callback(
                "evaluation",
                "page_is_shown",
                (f"return self.get_cache('page') == {following}",),
                f"Is page {following} shown?",
            ),
            evidence=f"If it worked, the view shows page {following}.",
        )

    def action(chance: random.Random, failed: str) -> Callback:
        if failed == "AssertionError":
            return _TAKE_OUT
        a, b = topics(page[4], chance)
        text = compose(chance, _REMARKS).format(a=a, b=b, page=here)
        quote = chance.choice(sentences(page[4]))
        if draw_flaw(chance, QUOTES):
            words = quote.split()
            words[chance.randrange(len(words))] = chance.choice(["perhaps", "often", "never", "always"])
            quote = " ".join(words)
        lines = (
            f"text = {literal(text)}",
            f"quote = {literal(quote)}",
            'report_editor(self).append(f"\\n{text}\\n\\n> {quote}\\n")',
            'assert strange_quotes() == [], "Does the quote stand in the text, word for word?"',
            f"turn_to(self, {following})",
            "return own_words()",
        )
        return Callback("action", f"write_about_page_{here}", lines, f"Write about page {here} and quote it")

    return Plan(
        seen=seen,
        step=f"write what page {here} brings, with a quote from it, and turn to page {following}",
        action=action,
        evaluation=grown,
        evidence=f"If it worked, the report has more than {words} words and no quote that is not in the text.",
    )


_TAKE_OUT = Callback(
    "action",
    "take_out_the_wrong_quote",
    (
        "editor = report_editor(self)",
        "for quote in strange_quotes():",
        '    line = editor.find("> " + quote)',
        '    editor.edit(line, line, "")',
        'assert strange_quotes() == [], "Are only real quotes left?"',
        "return len(quotes())",
    ),
    "Take out the quote that does not stand in the text",
)
_RETURN_REPORT = Callback(
    "action",
    "return_the_report",
    (
        'assert strange_quotes() == [], "Does every quote stand in the text?"',
        "words, count = own_words(), len(quotes())",
        'self.return_to_caller({"words": words, "quotes": count})',
        "return words",
    ),
    "Return the report",
)
_REMARKS = (
    (
        "On page {page} the text comes to {a}, and then to {b}.",
        "Page {page} is about {a}; with it goes {b}.",
        "What page {page} adds is {a}, seen together with {b}.",
    ),
    (
        "The author tells it plainly and in the order in which it happened.",
        "It is told without haste, and every detail is used later.",
        "The sentences are short where something happens, and longer where somebody thinks.",
    ),
    (
        "What I take from it is that small things were noted before anybody knew what for.",
        "I find it convincing, because the author says also what was not found out.",
        "One could wish for more about {b}, but the choice is a good one.",
    ),
    ("The following sentence shows it.", "This sentence carries the page.", "In the text's own words:"),
)


@lru_cache(maxsize=256)
def sentences(page: str) -> tuple[str, ...]:
    """Sentences of a page with 6 to 40 words and no quotation marks. If there are none, the page's first words."""
    all_sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(page.split()))
    usable = [sentence for sentence in all_sentences if 6 <= len(sentence.split()) <= 40 and '"' not in sentence]
    return tuple(usable or [" ".join(page.split()[:12])])


def topics(page: str, chance: random.Random) -> list[str]:
    """Two of the things that a page mentions most."""
    common = Counter(re.findall(r"\bthe ([a-z]{4,})\b", page)).most_common(8)
    return [f"the {word}" for word in chance.sample([word for word, _ in common], 2)]


# ---------------------------------------------------------------------------------------- the questions


def _question(page: re.Match[str], shown_question: re.Match[str]) -> Plan:
    here, count, text = int(page[1]), int(page[2]), page[4]
    number, question, done = int(shown_question[1]), shown_question[2], int(shown_question[4])
    unread = [other for other in range(here + 1, count + 1) if other not in _numbers(shown_question[3])]
    word, sure, sentence = guess(text, question)
    if sure < SURE and unread:
        following = unread[0]
        lines = (
            f"turn_to(self, {following})",
            f'assert question(self) is not None, "Is question {number} still open?"',
        )
        return Plan(
            seen=f"Question {number} asks: {question} No sentence of page {here} says so.",
            step=f"search page {following}",
            action=lambda _, __: Callback(
                "action", f"search_page_{following}", (*lines, f"return {following}"), f"Search page {following}"
            ),
            evaluation=Callback(
                "evaluation",
                "page_is_shown",
                (f"return self.get_cache('page') == {following}",),
                f"Is page {following} shown?",
            ),
            evidence=f"If it worked, the view shows page {following} and the same question.",
        )

    def action(chance: random.Random, failed: str) -> Callback:
        choice = chance.choice(_ANY.findall(sentence) or [word]) if draw_flaw(chance, ANSWERS) else word
        lines = (
            *plan.unless_done(f"len(answers(self)) == {done}", f"answer(self, {literal(choice)})", failed),
            f'assert len(answers(self)) == {done + 1}, "Has the answer been taken?"',
            f'return answers(self)[{done}]["right"]',
        )
        return Callback("action", f"answer_question_{number}", lines, f"Answer question {number}")

    return Plan(
        seen=f"Question {number} asks: {question} Page {here} says: {sentence}",
        step=f"answer that it is {word}",
        action=action,
        evaluation=Callback(
            "evaluation",
            "answer_was_right",
            (f"return len(answers(self)) > {done} and answers(self)[{done}]['right']",),
            f"Was the answer to question {number} right?",
        ),
        evidence=f"If the answer was taken, {done + 1} questions have been answered.",
    )


def _return_answers(count: int) -> Plan:
    lines = (
        "right = count_right(self)",
        f'assert len(answers(self)) == {count}, "Have all questions been answered?"',
        f'self.return_to_caller({{"right": right, "questions": {count}}})',
        "return right",
    )
    return Plan(
        seen=f"All {count} questions have been answered.",
        step="report to the caller how many answers were right",
        action=lambda _, __: Callback("action", "return_the_score", lines, "Return the number of right answers"),
        evaluation=_COMPLETED,
        evidence="If the caller has taken it, this subagent counts as completed.",
    )


def _stems(text: str) -> set[str]:
    """Meaningful words, cut so that the forms of a word are equal."""
    return {word[:5] for word in re.findall(r"[a-z-]+", text.lower()) if word not in _PLAIN}


@lru_cache(maxsize=1024)
def guess(page: str, question: str) -> tuple[str, float, str]:
    """The likeliest answer on a page, the share of the question's words in its sentence, and the sentence."""
    asked = _stems(question)
    if "how many" in question.lower():
        kind = _NUMBER
    elif "colour" in question.lower():
        kind = _COLOUR
    else:
        kind = _NAME if re.search(r"name|Who|bridge|town", question) else _ANY
    best = ("nothing", -1.0, "")
    for sentence in re.split(r"(?<=[.!?;:])\s+", " ".join(page.split())):
        words = re.findall(r"[A-Za-z-]+", sentence)
        fitting = [word for word in words if kind.fullmatch(word) and word[:5].lower() not in asked | _PLAIN]
        if kind is _NAME:
            fitting = [word for word in fitting if word != words[0]]
        share = len(asked & _stems(sentence)) / max(len(asked), 1)
        if fitting and share > best[1]:
            at = [words.index(word) for word in fitting]
            known = [place for place, word in enumerate(words) if word[:5].lower() in asked]
            near = min(at, key=lambda place: (min((abs(place - other) for other in known), default=0), place))
            best = (words[near], share, sentence)
    return best
