"""The task: read a text from the first page to the last, and write a report on it, with quotes.

The text lies beside this file and is shown a page at a time. Which one it is, how long the report must be, in
words of my own, and how many quotes it needs, each from another page, is set by the parameters, such as
{"text": "ferry", "words": 150, "quotes": 3}. A quote must stand in the text, word for word.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from tools.editor import WeaveEditor

from bootstraps import texts
from bootstraps.params import read_params

REPORT = os.path.abspath("report.md")

text_name, least_words, least_quotes = read_params(
    args.params, text=("ferry", texts.names()), words=(150, range(20, 2001)), quotes=(3, range(1, 7))
)
pages = texts.pages(text_name)


def turn_to(self, page):
    """Show a page of the text, counted from 1."""
    if page not in range(1, len(pages) + 1):
        raise ValueError(f"there is no page {page!r}: the text has pages 1 to {len(pages)}")
    self.update_cache("page", page)
    self.update_cache("read", sorted({page, *self.get_cache("read")}))


def report_editor(self):
    """The editor of the report; `report_editor(self).append("A new line.")` goes on with it."""
    return self.tools[f"editor-{REPORT}"]


def report_lines():
    with open(REPORT) as file:
        return file.read().split("\n")


def own_words():
    """How many words of the report are no quote."""
    return sum(len(line.split()) for line in report_lines() if not line.startswith(">"))


def quotes():
    """The lines of the report that begin with `> `, without that."""
    return [line.removeprefix(">").strip() for line in report_lines() if line.startswith(">")]


def one_line(text):
    return " ".join(text.split())


def pages_quoted():
    """The pages from which the report quotes four words or more."""
    found = [quote for quote in map(one_line, quotes()) if len(quote.split()) >= 4]
    return [page for page, text in enumerate(pages, 1) if any(quote in one_line(text) for quote in found)]


def strange_quotes():
    """The quotes that do not stand in the text."""
    return [quote for quote in quotes() if not any(one_line(quote) in one_line(text) for text in pages)]


def view_page(self):
    """The page that I am at."""
    page = self.get_cache("page")
    return f'Page {page} of {len(pages)} of "{texts.title(text_name)}":\n\n{pages[page - 1]}'


def view_progress(self):
    """What the report has and what it still lacks."""
    read, quoted = self.get_cache("read"), pages_quoted()
    return "\n".join(
        [
            f"Pages read: {', '.join(map(str, read))} of {len(pages)}",
            f"Own words: {own_words()} of {least_words}",
            f"Pages quoted: {', '.join(map(str, quoted)) or 'none'} ({len(quoted)} of {least_quotes})",
            f"Quotes that do not stand in the text: {'; '.join(strange_quotes()) or 'none'}",
        ]
    )


"""
I'm about to write a book report. What do I know? The text has several pages and I see one at a time, so I write
as I read: for each page a few sentences on what it brings and what I make of it, and where a sentence of the page
says it better than I could, I quote that sentence. Then `turn_to(self, page + 1)`.

What is a quote? A line of the report, in report.md, that begins with `> `. I copy it from the page that I see,
not from memory: `strange_quotes()` lists every quote that does not stand in the text, and that list must be empty.
Line breaks don't matter.

How does it end? When all pages are read, and the report is long enough and quotes enough pages, my action calls
`self.return_to_caller({"words": own_words(), "quotes": len(quotes())})`.

So now I set up the subagent `main`, open the text at page 1, and begin the report with its heading.
"""


def action_set_up_and_begin(self):
    schema = {"words": "integer", "quotes": "integer", "are_quotes_real": "boolean", "is_read": "boolean"}
    main = agent.subagent("main", None, f'Write a report on "{texts.title(text_name)}"', schema, args.budget)
    main.task.add_evaluation("Has every page been read?", is_read)
    main.task.add_evaluation(f"Does the report have {least_words} words of its own?", is_long_enough)
    main.task.add_evaluation(f"Does the report quote {least_quotes} pages or more?", is_quoting_enough)
    main.task.add_evaluation("Does every quote stand in the text, word for word?", are_quotes_real)
    main.task.add_evaluation("Does the report tell what the text is about, and what to think of it?", is_useful)
    main.update_cache("read", [])
    turn_to(main, 1)
    main.add_observation_view("Text", view_page)
    main.add_observation_view("Progress", view_progress)
    WeaveEditor(main, REPORT).append(f"# A report on {texts.title(text_name)}\n")
    assert report_lines()[0].startswith("# "), "Does the report begin with a heading?"
    assert strange_quotes() == [], "Is there no quote yet that does not stand in the text?"
    return f"{len(pages)} pages to read"


def is_read(self):
    return len(self.get_cache("read")) == len(pages)


def is_long_enough(self):
    return own_words() >= least_words


def is_quoting_enough(self):
    return len(pages_quoted()) >= least_quotes


def are_quotes_real(self):
    return strange_quotes() == []


def is_useful(self):
    questions = ("Does this report tell what the text is about?", "Does this report say what to think of it?")
    asks = [make_simple_score_prompt(question) for question in questions]
    return simple_evaluate_outputs(asks, ["\n".join(report_lines())])[0] > 0.5


self.add_action("Set up the main agent and open the text", action_set_up_and_begin)

"""
If this has worked, the first view shows page 1, the second says that one page is read and none quoted, and the
report consists of its heading.
"""


def eval_first_page_is_open(self):
    return self.get_cache("page") == 1 and quotes() == []


self.add_evaluation("Is page 1 open, with nothing quoted yet?", eval_first_page_is_open)
