"""A reader's desk: an installation with everything that the documents take for granted, and a terminal beside it.

Commands are typed unchanged into bash. A command that bash would only split into words runs in a process forked from
one that has already imported weavegen (tests/support/command.py). PLACEHOLDERS replace only what a document invents,
such as a trace's number or another machine's address.
"""

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.process import Process
from tests.docs.reading import Command, code
from tests.support import ROOT
from tests.support.collector import Collector
from tests.support.command import run
from tests.support.installation import Installation, installed
from tests.support.nano_model import make
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.wheels import wheel
from weavegen import config as configuration
from weavegen.database import Statement
from weavegen.services import fleet, postgres
from weavegen.store import traces, urls
from weavegen.store.session import pooled

PREPARE = """
import json, weavegen
from weavegen import requests

game, search, talk = "bootstraps/tictactoe.py", "bootstraps/tasks/cap_set.json", "bootstraps/conversation.py"
settings = {"ticks": 12, "all_questions": True, "tokens": "all"}
flawed = {"ticks": 12, "rounds": [1], "linting": False, "backtrack_below": -1000}
jobs = {
    "job": weavegen.enqueue(game, n=2, seed=1, settings=settings),
    "flawed": weavegen.enqueue(game, n=4, seed=1, settings=flawed),
    "talking": weavegen.enqueue(talk, seed=1, params={"messages": 1}, settings={"ticks": 2}),
    "answers": weavegen.enqueue(game, seed=1, agent="react"),
    "lookup": weavegen.enqueue(seed=1, agent="research", tasks=["Which openings won?"], documents="papers"),
    "searching": weavegen.enqueue(search, seed=1, agent="funsearch", settings={"ticks": 2}),
}
requests.create('How many words has "one two three four"?', seed=1)
for seed in range(REQUESTS):
    requests.create("Which words are most frequent in the text?", seed=seed)
print(json.dumps(jobs))
"""
"""Run once, as a user of the library. Some of the requests at the end will ask which text is meant."""
ENOUGH = """
with more as (
  insert into campaign_items (batch_id, block_id, candidate_id)
  select i.batch_id, i.block_id, i.candidate_id
  from campaign_items i cross join generate_series(1, 9)
  returning id, block_id
)
insert into answers (item_id, question, truth, yes, no, score, model, server)
select more.id, a.question, a.truth, a.yes, a.no, a.score, a.model, a.server
from more join campaign_items i on i.block_id = more.block_id join answers a on a.item_id = i.id
"""
"""Each answer counts ten times, so that a correction can be fitted to so few blocks."""
ANNOTATED = """
insert into annotations (trace_id, candidate_id, author, verdict, labels, note)
select p.trace_id, x.id, 'anna', x.verdict, '{}', ''
from (
  select * from preference_pairs where kind = 'candidates' and not outcome_differs order by trace_id, index limit 1
) p
cross join lateral (values (p.chosen_id, 'bad'), (p.rejected_id, 'good')) x (id, verdict)
"""
"""What a person says about two candidates of a block."""
PLACEHOLDERS = (
    (r"(weavegen (?:show|fork)|--trace|trace_id =) (?:\d+|TRACE)", r"\1 {trace}"),
    (r"(weavegen (?:status|pause|drain|resume|retune|cancel|report|watch)|--job) (?:\d+|JOB)", r"\1 {job}"),
    (r"(weavegen chat) (?:\d+|TRACE)", r"\1 {conversation}"),
    (r"(weavegen evolution) \d+", r"\1 {search}"),
    (r"(weavegen request (?:show|update|answer)) \d+", r"\1 {request}"),
    (r"(weavegen request cancel) \d+", r"\1 {another}"),
    (r"weavegen tools count_words", "weavegen tools {tool}"),
    (r"--at \d+", "--at {block}"),
    (r"-n \d+", "-n 2"),  # two traces are enough
    (r"--until \d+[kM]", "--until 40k"),  # the reader of `watch` waits for their end
    (
        r"(--search tree|--search execute|--agent funsearch|--from jobs\.jsonl)",
        r"\1 --ticks 1",
    ),  # running to the end would take minutes
    (r"\b(pairs-1b?|ran-1|clean)\b", r"\1-{place}"),  # names that can be used only once
    (r"docs/rubric\.toml", "rubric-{place}.toml"),  # its campaign is named after the file
    (r"(--(?:stop|resume|retry|campaign)) (?:NAME|ran)\b", r"\1 asked"),
    (r"http://(?:gpu7|vllm-2\.vllm):8000/v1", "{lent}"),
    (r"http://(?:gpu1:8000/v1,http://gpu2|127\.0\.0\.1):8000/v1", "{simulation}"),
    (r"http://127\.0\.0\.1:4318", "{collector}"),
    (r"(weavegen (?:sim|serve)|-m simulation|nano serve(?: my-model)?)(?! --port| my-)", r"\1 --port {port}"),
    (r"my-model", "{model}"),
    (r"=(?:writer|judge)\b", "=weavegen-sim"),
    (r"--model round-1", "--model weavegen-sim"),  # the served model
    (r"--(port|listen) \d+", r"--\1 {port}"),
    (r"DATABASE_URL=postgresql://weavegen@db/weavegen", "DATABASE_URL='{database}'"),
    (r"--file=corpus \"\$", r'--file=the-other "$'),
    (r"\$DATABASE_URL|postgresql://weavegen@/weavegen\?host=/my/home/run/postgres", "{libpq}"),
    (r"\$WEAVEGEN_READER_URL", "{reader}"),
    (r"/new/home", "{other}/{place}"),
)
"""What a document invents, and its replacement. In braces: Desk.facts."""
ENDLESS = re.compile(r"weavegen (serve|nano serve|sim|watch|metrics --listen|spans --follow)|-m simulation")
"""Commands that users end with Ctrl-C."""
PLAIN = re.compile(r"weavegen( [\w ./:=,'\"-]+)?")
"""Commands that bash only splits into words."""
PORT = re.compile(r"--(?:port|listen) (\d+)")
"""The port at which these commands answer once they are up, if they do."""
STEERING = re.compile(r"weavegen (pause|drain|resume|up|pool (add|remove))")
"""Commands that would affect all other commands."""
REQUESTS = re.compile(r"weavegen request (show|update|answer|cancel) \d")
"""Commands about a request that waits for an answer."""
PATIENCE = 240
"""Seconds that a command may take, and for which its reader waits."""


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    typed: str
    code: int
    out: str
    err: str


class Desk:
    """An installation in which commands of documents are run."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        """`folder` must be empty."""
        self.installation, self.folder, self.dump = installation, folder, folder / "corpus.dump"
        self.places = itertools.count(1)
        self.facts: dict[str, str] = {}
        self.asking: Iterator[int] = iter(())
        """Requests that wait for an answer."""
        self.collector = Collector()
        self.lent = Process(folder, "lent", "--port", "0")
        self.other = Path(tempfile.mkdtemp(prefix="weavegen-desk-"))
        self.other.chmod(0o755)
        binaries = (Path(sys.executable).parent, postgres.binaries())
        self.environ = installation.environ | {"PATH": ":".join([*map(str, binaries), installation.environ["PATH"]])}

    def close(self) -> None:
        self.lent.kill()
        self.collector.shutdown()
        self.collector.server_close()
        for home in self.other.iterdir():
            fleet.down(configuration.load(self.installation.environ | {"WEAVEGEN_HOME": str(home)}))
        shutil.rmtree(self.other)

    def prepare(self, requests: int) -> None:
        """Have the workers write the traces of the documents, and `requests` requests that wait for an answer."""
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        place = self.place("README.md")
        script = PREPARE.replace("REQUESTS", str(2 * requests))
        done = self.bash(f"python - <<'END'\n{script}\nEND", place)
        assert done.code == 0, done
        jobs = json.loads(done.out)
        config, sql = self.installation.config, self.installation.sql
        for job in jobs.values():
            self.installation.wait(job)
        largest = {
            name: sql("select id, blocks from traces where job_id = :job order by blocks desc limit 1", job=job)[0]
            for name, job in jobs.items()
        }
        until(
            lambda: not sql("select from requests where status in ('NOT_STARTED', 'IN_PROGRESS')"),
            "the requests",
            seconds=PATIENCE,
        )
        asking = sql("select id from requests where status = 'WAITING_FEEDBACK' order by id")
        assert len(asking) >= requests, asking
        self.asking = (request for [request] in asking)
        [[tool], *_] = sql("select name from tools")
        url = urls.database_url(config)
        libpq = url.replace("+psycopg", "")
        self.facts = {
            "trace": str(largest["job"][0]), "block": str(largest["job"][1] * 2 // 3), "job": str(jobs["job"]),
            "conversation": str(largest["talking"][0]), "search": str(largest["searching"][0]), "tool": tool,
            "lent": self.lent.url, "simulation": self.installation.json("pool", "list")[0]["url"],
            "collector": f"http://127.0.0.1:{self.collector.server_port}",
            "database": url, "libpq": libpq, "reader": libpq.replace("//weavegen@", "//weavegen_reader@"),
            "model": str(make(self.folder / "model")), "other": str(self.other),
        }  # fmt: skip
        for text in (
            "weavegen rescore --rubric docs/rubric.toml --name asked --where true --wait",
            "weavegen refresh",
            f"weavegen backup {self.dump}",
        ):
            done = self.bash(text, place)
            assert done.code == 0, done
        engine = pooled(url)
        with engine.begin() as conn:
            conn.execute(Statement(ENOUGH))
            conn.execute(Statement(ANNOTATED))
        engine.close()

    def place(self, document: str) -> Path:
        """A folder for each document with the files that its reader has: the project's files and the examples."""
        folder = self.folder / str(number := next(self.places))
        folder.mkdir()
        for name in ("bootstraps", "docs", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        (folder / ".weavegen").symlink_to(self.installation.home)
        (folder / f"rubric-{number}.toml").symlink_to(ROOT / "docs" / "rubric.toml")
        if self.dump.exists():
            (folder / "corpus.dump").symlink_to(self.dump)
        own, made = folder / "my_bootstraps", folder / "tasks"
        for one in (own, made, folder / "papers", folder / "my-venv", folder / "my-files"):
            one.mkdir()
        (folder / "requirements.txt").write_text(f"{wheel(folder, 'one', '1.5', 'pass')}\n")
        for file in (folder / "number.py", folder / "my_bootstrap.py", own / "number.py"):
            file.write_text(self.example("writing-bootstraps.md", '"""The task'))
        with (own / "number.py").open("a") as appended:  # the parameter of README.md's command
            appended.write('\nlevel = args.params.get("level", "easy")\n')
        (folder / "jobs.jsonl").write_text(
            self.example("commands.md", '{"bootstrap"') + self.example("writing-bootstraps.md", '{"bootstrap"') + "\n"
        )
        researching = "research" in document
        (folder / "tasks.jsonl").write_text(
            self.example("research.md", '{"task": {') if researching else '{"task": "Count the files in /etc", "n": 4}'
        )
        (folder / "more.json").write_text(self.example("agents.md", '{"task": "Count'))
        (made / "count.md").write_text("Count the files in /etc")
        (folder / "papers" / "openings.md").write_text("The corner wins most games against minimax.")
        (folder / "question.sql").write_text("select count(*) from blocks")
        return folder

    def example(self, document: str, begin: str) -> str:
        """The document's code that begins with `begin`."""
        [found] = [one.text for one in code(ROOT / "docs" / document) if one.text.startswith(begin)]
        return found

    def run(self, commands: Sequence[Command]) -> dict[Command, Outcome]:
        """Run the commands of one block in order. Traces that they enqueue are cancelled at the end."""
        place = self.place(commands[0].path)
        facts = self.facts | {"place": place.name}
        if any(REQUESTS.match(one.text) for one in commands):
            facts |= {"request": str(next(self.asking)), "another": str(next(self.asking))}
        outcomes = {}
        for command in commands:
            text = "\n".join(filled(one, facts) for one in (*command.exports, command.text))
            outcomes[command] = self.ended(text, place) if ENDLESS.search(text) else self.bash(text, place)
        self.cancel(f"desk-{place.name}")
        everything = " ".join(command.text for command in commands)
        if "pool add" in everything and "pool remove" not in everything:
            self.bash(f"weavegen pool remove {self.lent.url}", place)
        if "weavegen up" in everything:  # with the settings that the other documents expect
            self.bash("OPENAI_BASE_URL= WEAVEGEN_DISCORD_TOKEN= weavegen up", place)
        if STEERING.search(everything):
            self.bash("weavegen resume", place)
        return outcomes

    def bash(self, text: str, place: Path) -> Outcome:
        """Run until it ends by itself."""
        if PLAIN.fullmatch(text):
            done = run(shlex.split(text)[1:], self.environ_at(place), place, PATIENCE)
            return Outcome(text, done.returncode, done.stdout, done.stderr)
        with self.terminal(text, place) as process:
            out, err = process.communicate(timeout=PATIENCE)
            return Outcome(text, process.returncode, out, err)

    def ended(self, text: str, place: Path) -> Outcome:
        """Run until it is up, and then press Ctrl-C."""
        with self.terminal(text, place) as process:
            assert process.stdout is not None
            first = ""
            if found := PORT.search(text):
                until(lambda: process.poll() is not None or answers(int(found[1])), text, seconds=PATIENCE)
            elif "--follow" in text:
                before = len(self.collector.spans)
                self.bash("weavegen enqueue bootstraps/tictactoe.py --ticks 1", place)
                until(lambda: process.poll() is not None or len(self.collector.spans) > before, text, seconds=PATIENCE)
            else:
                first = process.stdout.readline()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
            return Outcome(text, process.returncode, first + out, err)

    def environ_at(self, place: Path) -> dict[str, str]:
        """Environment variables of commands that are typed there."""
        return self.environ | {"WEAVEGEN_USER": f"desk-{place.name}"}

    @contextlib.contextmanager
    def terminal(self, text: str, place: Path) -> Iterator["subprocess.Popen[str]"]:
        """A terminal in which the text is typed."""
        process = subprocess.Popen(
            ["bash", "-c", text],
            env=self.environ_at(place),
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def cancel(self, user: str) -> None:
        """Cancel the jobs of this user."""
        db = pooled(urls.database_url(self.installation.config))
        query = Statement(
            """
            select distinct j.id from jobs j join traces t on t.job_id = j.id
            where t.status in ('queued', 'running') and j.enqueued_by = :user
            """
        )
        with db.begin() as conn:
            for job in conn.execute(query, {"user": user}).scalars():
                traces.cancel(conn, job)
        db.close()


def filled(text: str, facts: Mapping[str, str]) -> str:
    """The text with PLACEHOLDERS replaced."""
    facts = {**facts, "port": str(free_port())}
    for pattern, put in PLACEHOLDERS:
        text = re.sub(pattern, lambda found, put=put: found.expand(put).format(**facts), text)
    return text


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def desk(folder: Path, requests: int = 0) -> Iterator[Desk]:
    """A prepared desk."""
    with installed() as installation:
        own = Desk(installation, folder)
        try:
            own.prepare(requests)
            yield own
        finally:
            own.close()
