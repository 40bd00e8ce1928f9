"""Prompt tokens that a block costs on a real vLLM: with weavegen's prompts, and with those of weave-agent.

The same blocks and candidates are sent to the same server in both ways: a request for continuations of the block's
context, then one that asks about each candidate. weave-agent's way: the last 60 blocks, a window that moves with
every block, labels that are drawn again at every render, and prompts as texts. The tokens that the server computed
are the ones that it looked up in its prefix cache minus the hits, by its own counters.
"""

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from bench.long_trace import BOOTSTRAP
from tests.support.vllm_server import SCRIPT, Server
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.engine.prompt_assembly import Body, begun, question_prompt
from weavegen.kernel import context, prompts
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import PLAIN
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Tokens, joined
from weavegen.store.jobs import Order
from weavegen.store.session import database
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import parse_trace, render_block, render_header

FIRST, LAST = 90, 130
"""The blocks of the trace that are measured. The window is full before them, and drops blocks twice meanwhile."""
CANDIDATES = 4
"""Candidates that are asked about for each block: the cascade's first round."""
ORIGINAL_WINDOW = 60

SETTINGS = Settings()


@dataclass(frozen=True)
class WrittenBlock:
    """A block that the model wrote, and the candidates from which it was chosen."""

    index: int
    type: BlockType
    header: str
    candidates: list[str]

    @property
    def asking(self) -> str:
        return context.asked(Prompt(type=self.type, window=(0, 0), header=self.header), PLAIN)

    @property
    def question(self) -> str:
        return prompts.questions(self.type)[0]


Reading = Callable[[ModelClient, Sequence[str], WrittenBlock], str | Tokens]
"""(client, rendered blocks, the block to write) -> the prompt."""


def run(console: Console) -> list[Figure]:
    """Have a trace written by the simulated model, then send its prompts to a real vLLM in both ways."""
    texts, written = record()
    subprocess.run(["bash", str(SCRIPT), "install"], check=True)
    rows, computed = [], {}
    with tempfile.TemporaryDirectory(prefix="weavegen-bench-") as folder:
        subprocess.run(["bash", str(SCRIPT), "model", folder], check=True, capture_output=True)
        for name, reading in (("the original's", original), ("ours", ours)):
            server = Server(Path(folder), Path(folder) / f"{reading.__name__}.log", [])
            try:
                server.wait()
                looked_up, hits, seconds = replay(server, reading, texts, written)
            finally:
                server.kill()
            computed[name] = (looked_up - hits) / len(written)
            rows.append([name, looked_up / len(written), computed[name], 100 * hits / looked_up, seconds])
    columns = ("schedule", "prompt tokens", "computed", "hits, %", "seconds in all")
    title = f"\nPrompt tokens per block on a real vLLM, {len(written)} blocks, {CANDIDATES} candidates each"
    console.print(table(title, columns, rows))
    ratio = computed["the original's"] / computed["ours"]
    return [Figure("prompt tokens computed, original / ours", ratio, "x", at_least=3)]


def record() -> tuple[list[str], list[WrittenBlock]]:
    """The rendered blocks of a trace, and the blocks that are measured."""
    with home() as folder, installation(folder):
        job = enqueueing.enqueue(traces=[Order("notes.py", BOOTSTRAP)], seed=1, settings={"blocks": LAST}, check=False)
        over = Statement("select status = 'ended' from traces where job_id = :job")
        while True:
            time.sleep(0.5)
            with database().connect() as conn:
                if conn.execute(over, {"job": job}).scalar_one():
                    break
        with database().connect() as conn:
            texts = list(conn.execute(Statement("select rendered from blocks order by index")).scalars())
            sampled = conn.execute(
                Statement(
                    "select block_index, text from candidates c join blocks b on b.index = c.block_index "
                    "and b.type = c.type where c.round = 0 order by c.block_index, c.position"
                )
            ).all()
    candidates: dict[int, list[str]] = {}
    for index, text in sampled:
        candidates.setdefault(index, []).append(text)
    blocks = parse_trace("".join(texts))
    written = [
        WrittenBlock(index, blocks[index].type, render_header(blocks[index]), candidates[index][:CANDIDATES])
        for index in range(FIRST, min(LAST, len(blocks)))
        if index in candidates
    ]
    return texts, written


def replay(
    server: Server, reading: Reading, texts: Sequence[str], written: Sequence[WrittenBlock]
) -> tuple[int, int, float]:
    """(prompt tokens looked up in the prefix cache, hits, seconds) for all blocks."""
    client = ModelClient(server.url, "EMPTY", None)
    client.yes_no(["The question that finds out about the server. "])
    begin(client, reading, texts, written[0])
    before, began = server.metrics(), time.monotonic()
    for block in written:
        begin(client, reading, texts, block)
    after, seconds = server.metrics(), time.monotonic() - began
    client.close()
    return after.queries - before.queries, after.hits - before.hits, seconds


def begin(client: ModelClient, reading: Reading, texts: Sequence[str], block: WrittenBlock) -> None:
    """Send the requests of one block: one token of a continuation, then the questions."""
    prompt = reading(client, texts, block)
    client.sample(
        begun(client, prompt, "", ""), n=1, max_tokens=1, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=()
    )
    client.yes_no([question_prompt(client, prompt, "", Body(text), block.question, ()) for text in block.candidates])


def ours(client: ModelClient, texts: Sequence[str], block: WrittenBlock) -> str | Tokens:
    """weavegen's prompt, as weavegen/engine/prompt_assembly.py composes it."""
    first, end = context.window(block.index, SETTINGS)
    pieces = [client.piece(PLAIN.block_open + texts[0], bos=True)]
    pieces += [client.piece(text) for text in (*texts[1 : context.PINNED], *texts[first:end])]
    return joined([*pieces, client.piece(block.asking)])


def original(client: ModelClient, texts: Sequence[str], block: WrittenBlock) -> str | Tokens:
    """weave-agent's prompt."""
    chance = random.Random(block.index)
    first = max(context.PINNED, block.index - ORIGINAL_WINDOW)
    tail = []
    for earlier in parse_trace("".join(texts))[first : block.index]:
        if earlier.label is not None:
            yes = earlier.label.probability if earlier.label.answer else 1 - earlier.label.probability
            answer = chance.random() < yes
            label = msgspec.structs.replace(earlier.label, answer=answer, probability=yes if answer else 1 - yes)
            earlier = msgspec.structs.replace(earlier, label=label)
        tail.append(render_block(earlier))
    return "".join([PLAIN.block_open, *texts[: context.PINNED], *tail, block.asking])
