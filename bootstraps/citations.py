"""The task: put citations into an article of an encyclopaedia, one behind every claim that a source supports.

The article is /app/article.md: a heading, an empty line, then one claim in each line. The sources are in an archive, on
http://127.0.0.1:8000/. A citation is the source's number at the end of the claim's line: `The Old Mill was opened in
1831. [3]`. A source supports a claim if it says the same of the same thing. It does not if it gives another value,
tells of a thing with another name (the New Mill), or repeats the claim only to deny it. About half of the claims have
no support, and must have no citation. Nothing else in the article may change. Parameters: {"claims": 10} says how many
claims there are, 4 to 30, {"sources": 6} how many sources, 4 to 12.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from tools.browser import WeaveBrowser
from tools.editor import WeaveEditor

from bootstraps import citation_archive
from bootstraps.params import read_params

ARTICLE = "/app/article.md"
HOME = "http://127.0.0.1:8000"

claim_count, source_count = read_params(args.params, claims=(10, range(4, 31)), sources=(6, range(4, 13)))
article = citation_archive.write(random.getrandbits(64), claim_count, source_count)


def article_text():
    with open(ARTICLE, errors="replace") as file:
        return file.read(citation_archive.LONGEST_ARTICLE)


def cited():
    """(claim, [numbers of the sources cited behind it]) of each line of the article that has a claim."""
    return citation_archive.citations(article_text())[2:-1]


def browser(self):
    """The browser in the archive: `browser(self).open(HOME + "/source/3")`, `.follow(2)`, `.back()`."""
    return self.tools["browser"]


def search(self, words):
    """Open the list of the sources that have all of these words. Gives it as text."""
    return browser(self).open(f"{HOME}/search?q={words.replace(' ', '%20')}")


def cite(self, claim, *numbers):
    """Put these citations behind the claim of that number, counted from 1, in place of those that it has."""
    text = cited()[claim - 1][0] + "".join(f" [{number}]" for number in numbers)
    self.tools[f"editor-{ARTICLE}"].edit(claim + 2, claim + 2, text)
    self.update_cache("decided", sorted({claim, *self.get_cache("decided")}))
    return text


def leave(self, claim):
    """Note that I have looked for the claim of that number, and that no source supports it."""
    return cite(self, claim)


def view_progress(self):
    """The claims with their numbers: what I have cited, and what is still to be looked up."""
    decided, lines = self.get_cache("decided"), []
    for number, (claim, sources) in enumerate(cited(), 1):
        state = ", ".join(map(str, sources)) if sources else "no support" if number in decided else "to be looked up"
        lines.append(f"{number}. {claim} ({state})")
    return "\n".join([*lines, f"Looked up: {len(decided)} of {claim_count}."])


"""
I'm about to cite sources. What do I know? Every claim names a thing and one fact about it. `search(self, "old mill")`
lists the sources in which all of these words stand, and `browser(self).follow(1)` opens the first of them. The words
of the source are not the words of the claim: "1831 saw the opening of the Old Mill" supports "was opened in 1831".

What could mislead me? Three things. A source may give another year or another name: then it supports nothing. It may
speak of the New Mill where the claim is about the Old Mill. And it may say "One often reads that ...; that is an
error": that is a denial. So I read the whole sentence, compare thing, fact and value, and only then cite:
`cite(self, 4, 3)` puts [3] behind claim 4. If I have read all sources with the thing's name and none fits,
`leave(self, 4)` notes that. A wrong citation is worse than a missing one: a reader would trust it.

How does it end? When the progress view has nothing left to be looked up, my action calls
`self.return_to_caller({"cited": sum(bool(sources) for _, sources in cited())})`.

So now I set up the subagent `main`, write the article's file, and search the archive for the first claim.
"""


def action_set_up_and_search(self):
    what = f"Put citations behind the claims of {ARTICLE} that a source in the archive supports"
    main = agent.subagent("main", None, what, {"cited": "integer", "is_nothing_else_cited": "boolean"}, args.budget)
    main.task.add_evaluation(
        "Does every claim that a source supports have its citation?",
        is_all_cited, protected=True, files=["article.md"],
    )  # fmt: skip
    main.task.add_evaluation(
        "Is no claim cited that has no support, and no source that does not support it?",
        is_nothing_else_cited, protected=True, files=["article.md"],
    )  # fmt: skip
    main.task.add_evaluation(
        "Is the article the same but for its citations?", is_text_kept, protected=True, files=["article.md"]
    )
    citation_archive.Archive(article.sources).start()
    main.update_cache("decided", [])
    with open(ARTICLE, "w") as file:
        file.write(article.text())
    WeaveEditor(main, ARTICLE)
    WeaveBrowser(main, HOME)
    main.add_observation_view("Progress", view_progress)
    thing = article.claims[0].split(" ")[1:3]
    page = search(main, " ".join(thing))
    assert page, "Has the archive answered?"
    assert len(cited()) == claim_count, "Does every line below the heading have one claim?"
    return f"sources with {' '.join(thing)}: {len(browser(main).links()) - 1}"


def is_all_cited(self):
    """Every claim with support cites a source that supports it."""
    found = dict(cited())
    wanted = zip(article.claims, article.support, strict=True)
    return all(set(found.get(claim, [])) & support for claim, support in wanted if support)


def is_nothing_else_cited(self):
    """No line cites a source that does not support it, the heading included."""
    support = dict(zip(article.claims, article.support, strict=True))
    return all(set(numbers) <= support.get(line, set()) for line, numbers in citation_archive.citations(article_text()))


def is_text_kept(self):
    lines = [line for line, _ in citation_archive.citations(article_text())]
    return "\n".join(lines) == article.text()


self.add_action("Set up the main agent and search for the first claim", action_set_up_and_search)

"""
If this has worked, the editor shows the article without any citation, the browser the sources that have the name of
the first claim's thing, and the progress view says that no claim has been looked up.
"""


def eval_nothing_is_cited_yet(self):
    return "/search" in browser(self).url and not any(sources for _, sources in cited())


self.add_evaluation("Is the archive open, with nothing cited yet?", eval_nothing_is_cited_yet)
