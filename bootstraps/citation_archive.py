"""An article with claims and an archive of sources, made from a seed, for the bootstrap citations.

A source supports a claim if it says the same of the same thing. What makes that hard: another source gives another
year, a source tells of a thing with a similar name, and a source repeats a claim only to deny it. Which sources
support which claim is known here (`Article.support`), and nowhere in the archive's pages.

GET /             the catalogue: number and title of every source
GET /source/3     a source
GET /search?q=mill%20bridge    the sources that have all of the words
"""

import html
import re
import threading
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

LONGEST_ARTICLE = 100_000
CITED = re.compile(r"^(.*?)((?: ?\[\d{1,4}\])*)\s*$")
"""A line: the claim, and the citations behind it."""

TOWNS = ("Aldermoor", "Brackwater", "Carnholt", "Dunsell", "Eskerby", "Fenmarket")
PAIRS = ("Old", "New"), ("North", "South"), ("Upper", "Lower"), ("Great", "Little")
THINGS = ("Mill", "Bridge", "Quay", "School", "Chapel", "Granary", "Tower", "Brewery")
PEOPLE = (
    "Ada Thorn",
    "Jonas Pell",
    "Mira Castle",
    "Edwin Rook",
    "Hanna Vale",
    "Otto Finch",
    "Clara Stone",
    "Ben Marsh",
)
STUFF = ("granite", "oak", "brick", "limestone", "slate", "iron")
TITLES = (
    "Minutes of the town council", "Letters of a schoolmaster", "A walk through {town}", "The {town} Gazette",
    "Register of buildings", "Memories of a ferryman", "Accounts of the builders' guild", "Reports of the surveyor",
    "Sermons and notes", "The traveller's pocket guide", "Diary of an innkeeper", "Papers of the historical society",
)  # fmt: skip
FATES = ("supported", "denied", "supported", "contradicted", "supported", "namesake", "supported", "absent")
"""What becomes of claims: a source supports it, denies it, gives another value, tells of a namesake, or none has it."""
FILLERS = (
    "The winter of that year was long, and the river froze twice.",
    "Strangers are advised to ask for the key at the inn.",
    "The writer of these lines did not see it himself.",
    "Nothing more is known of the matter.",
    "The price of bread had doubled since the spring.",
    "A drawing of it hangs in the town hall.",
    "On market days the road is full of carts.",
    "The roof leaked for as long as anybody could remember.",
)


@dataclass(frozen=True)
class Kind:
    """A property of things: how the article says it, how sources say it and deny it, and how values are drawn."""

    claim: str
    said: tuple[str, ...]
    denied: str
    values: Sequence[object]


KINDS = (
    Kind(
        "The {thing} was opened in {value}.",
        ("In {value} the {thing} was opened to everybody.", "{value} saw the opening of the {thing}."),
        "One often reads that the {thing} was opened in {value}; that is an error.",
        range(1780, 1900),
    ),
    Kind(
        "The {thing} was designed by {value}.",
        ("{value} drew the plans of the {thing}.", "The plans of the {thing} are by {value}."),
        "That {value} drew the plans of the {thing} is a legend.",
        PEOPLE,
    ),
    Kind(
        "The {thing} is made of {value}.",
        ("For the {thing} nothing but {value} was used.", "The builders chose {value} for the {thing}."),
        "The {thing} was planned in {value}, but never built so.",
        STUFF,
    ),
    Kind(
        "The {thing} burnt down in {value}.",
        ("The fire of {value} left nothing of the {thing}.", "The {thing} was lost to the flames in {value}."),
        "The fire of {value}, contrary to what people say, did not touch the {thing}.",
        range(1900, 1960),
    ),
    Kind(
        "The {thing} cost {value} crowns.",
        ("The accounts put the {thing} at {value} crowns.", "{value} crowns were paid for the {thing}."),
        "The sum of {value} crowns that is told of the {thing} is an invention.",
        range(400, 9000, 50),
    ),
)


@dataclass(frozen=True)
class Source:
    """A document. Its number, from 1, is what a citation names."""

    number: int
    title: str
    text: str


@dataclass(frozen=True)
class Article:
    """The article without citations, its sources, and for each claim the numbers of the sources that support it."""

    title: str
    claims: tuple[str, ...]
    support: tuple[frozenset[int], ...]
    sources: tuple[Source, ...]

    def text(self) -> str:
        """The article's file: a heading, an empty line, and a claim in each further line."""
        return "\n".join([f"# {self.title}", "", *self.claims]) + "\n"


def write(seed: int, claims: int, sources: int) -> Article:
    """An article with so many claims, half of them supported, and so many sources (4 or more)."""
    random = Random(seed)
    town = random.choice(TOWNS)
    things = [(f"{one} {thing}", f"{other} {thing}") for thing in THINGS for one, other in [random.choice(PAIRS)]]
    chosen = random.sample([(names, kind) for names in things for kind in KINDS], claims)
    fates = [FATES[number % len(FATES)] for number in range(1, claims)]
    random.shuffle(fates)
    fates = [FATES[0], *fates]  # so that a search for the first claim finds something
    said: list[list[str]] = [[] for _ in range(sources)]
    written, support = [], []
    for (names, kind), fate in zip(chosen, fates, strict=True):
        (thing, namesake), (value, other) = random.sample(names, 2), random.sample(list(map(str, kind.values)), 2)
        places = random.sample(range(sources), 4)
        supporting = places[: random.randint(1, 2)] if fate == "supported" else []
        for place in supporting:
            said[place].append(random.choice(kind.said).format(thing=thing, value=value))
        if fate == "contradicted" or (fate == "supported" and random.random() < 0.4):
            said[places[2]].append(random.choice(kind.said).format(thing=thing, value=other))
        if fate == "denied":
            said[places[2]].append(kind.denied.format(thing=thing, value=value))
        if fate == "namesake" or random.random() < 0.3:
            said[places[3]].append(random.choice(kind.said).format(thing=namesake, value=value))
        written.append(kind.claim.format(thing=thing, value=value))
        support.append(frozenset(place + 1 for place in supporting))
    titles = [title.format(town=town) for title in random.sample(TITLES, sources)]
    texts = [woven(random, sentences) for sentences in said]
    found = [Source(number, f"{name}, volume {random.randint(1, 9)}", text) for number, (name, text)
             in enumerate(zip(titles, texts, strict=True), 1)]  # fmt: skip
    return Article(f"The buildings of {town}", tuple(written), tuple(support), tuple(found))


def woven(random: Random, sentences: Sequence[str]) -> str:
    """Sentences in any order, among others that say nothing of value."""
    whole = [*sentences, *random.sample(FILLERS, 3)]
    random.shuffle(whole)
    return " ".join(whole)


def citations(text: str) -> list[tuple[str, list[int]]]:
    """Each line of an article's file: what stands there without citations, and the sources that are cited behind it."""
    matches = [CITED.match(line[:1000]) for line in text[:LONGEST_ARTICLE].split("\n")]
    return [(match[1], [int(number) for number in re.findall(r"\d+", match[2])]) for match in matches if match]


class Archive:
    """The sources as web pages."""

    def __init__(self, sources: Sequence[Source]):
        self.sources = sources

    def page(self, address: str) -> tuple[int, str]:
        """Status and HTML of an address."""
        path, _, query = address.partition("?")
        if path == "/":
            return 200, self.listed("The archive", self.sources)
        if path == "/search":
            words = urllib.parse.parse_qs(query).get("q", [""])[0].lower().split()
            hits = [one for one in self.sources if all(word in f"{one.title} {one.text}".lower() for word in words)]
            return 200, self.listed(f"Sources with: {' '.join(words)}", hits)
        number = path.removeprefix("/source/")
        if number.isdecimal() and 0 < int(number) <= len(self.sources):
            source = self.sources[int(number) - 1]
            return 200, shown(f"[{source.number}] {source.title}", f"<p>{html.escape(source.text)}</p>")
        return 404, shown("There is no such page", "<p>There are /, /source/NUMBER and /search?q=WORDS.</p>")

    def listed(self, title: str, sources: Sequence[Source]) -> str:
        items = [
            f'<li><a href="/source/{one.number}">[{one.number}] {html.escape(one.title)}</a></li>' for one in sources
        ]
        return shown(title, f"<ul>{''.join(items)}</ul>" if items else "<p>None.</p>")

    def start(self, port: int = 8000) -> ThreadingHTTPServer:
        """Serve on 127.0.0.1, in a thread, from now on."""
        archive = self

        class Handler(BaseHTTPRequestHandler):
            wbufsize = -1

            def do_GET(self) -> None:
                status, page = archive.page(self.path)
                data = page.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: it would be taken for output of the block that is running."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
        return server


def shown(title: str, body: str) -> str:
    """An HTML page."""
    title = html.escape(title)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1>{body}<p><a href='/'>All sources</a></p>"
