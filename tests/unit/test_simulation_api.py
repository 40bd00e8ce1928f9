"""The simulation serves vLLM's API: requests, answers, refusals, metrics and faults."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from starlette.types import Message

from simulation import MODEL, complete, tokenizer
from simulation.load import Engine
from simulation.options import Options
from simulation.parameters import Faults, Load
from simulation.server import app
from weavegen_nano.counters import REASONS
from weavegen_nano.protocol import BadRequest, CompletionRequest

TEXT = "The board shows an X in the corner. I will check the answer of the server before I go on. " * 20


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """Calls the application as uvicorn does, but without the network."""

    def __init__(self, load: Load | None = None, faults: Faults | None = None, *, plain: bool = False) -> None:
        self._app = app(Options(load=load or Load(), faults=faults or Faults(), plain=plain))
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()

    def get(self, path: str) -> Answer:
        return self._loop.run_until_complete(self._call("GET", path, b""))

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return self._loop.run_until_complete(self._call("POST", path, json.dumps(body).encode()))

    async def _call(self, method: str, path: str, body: bytes) -> Answer:
        sent: list[Message] = []
        coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not coming:
                await asyncio.Event().wait()  # the client stays connected
            return coming.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await self._app(scope, receive, send)
        return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode())


def asked(served: Client, prompt: Any = TEXT, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "seed": 1} | more
    answer = served.post("/v1/completions", body)
    assert answer.status == 200, answer.text
    return dict(answer.json())


def refusal(served: Client, **body: Any) -> str:
    answer = served.post("/v1/completions", {"prompt": TEXT} | body)
    assert answer.status == 400
    return str(answer.json()["error"]["message"])


def test_a_prompt_may_be_text_or_tokens() -> None:
    with Client() as served:
        ids = served.post("/tokenize", {"prompt": TEXT}).json()["tokens"]
        assert served.post("/detokenize", {"tokens": ids[1:]}).json() == {"prompt": TEXT}
        by_text, by_ids = asked(served), asked(served, ids[1:])
        assert by_text["choices"][0]["text"] == by_ids["choices"][0]["text"]
        assert by_text["usage"]["prompt_tokens"] == len(ids) == by_ids["usage"]["prompt_tokens"] + 1
        bare = asked(served, add_special_tokens=False)
        assert bare["usage"]["prompt_tokens"] == len(ids) - 1
        assert by_text["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert bare["usage"]["prompt_tokens_details"] == {"cached_tokens": (len(ids) - 2) // 16 * 16}


@pytest.mark.parametrize("prompt", [[], [[]], [""], [300, "x"], ["x", [300]], [300, [301]], [-1], [10**12], [[10**6]]])
def test_invalid_prompts_are_refused(prompt: Any) -> None:
    with Client() as served:
        assert "rompt" in refusal(served, prompt=prompt, add_special_tokens=False) or "Token id" in refusal(
            served, prompt=prompt
        )


def test_a_text_ends_before_the_stop_string() -> None:
    with Client() as served:
        whole = asked(served, max_tokens=50)["choices"][0]["text"]
        word = whole[5:9]
        cut = asked(served, max_tokens=50, stop=word)["choices"][0]["text"]
        assert cut + word == whole[: len(cut + word)]


def test_lengths() -> None:
    with Client(Load(max_model_len=100)) as served:
        assert served.get("/v1/models").json()["data"][0]["max_model_len"] == 100
        assert served.post("/tokenize", {"prompt": "x"}).json()["max_model_len"] == 100
        assert "maximum context length is 100 tokens" in refusal(served)
        assert "max_tokens must be at least 1, got 0" in refusal(served, prompt=[300] * 100)
        assert asked(served, [300] * 97, max_tokens=50)["usage"]["total_tokens"] <= 100


def test_priorities_need_the_scheduling_policy() -> None:
    with Client(Load(scheduling_policy="fcfs")) as served:
        assert "Got priority 3" in refusal(served, priority=3)
        assert asked(served, priority=0)
    with Client() as served:
        assert asked(served, priority=3)


def test_a_plain_server_lacks_vllms_extensions() -> None:
    with Client(plain=True) as served:
        for path in ("/tokenize", "/detokenize", "/metrics"):
            assert served.get(path).status == served.post(path, {}).status == 404
        assert "token ids" in refusal(served, prompt=[300, 301])
        assert "token ids" in refusal(served, prompt=[[300, 301]])
        assert "logprob_token_ids" in refusal(served, logprobs=1, logprob_token_ids=[300])
        answer = asked(served, logprobs=1, return_tokens_as_token_ids=True, priority=9)
        assert not answer["choices"][0]["logprobs"]["tokens"][0].startswith("token_id:")
        assert answer["usage"]["prompt_tokens_details"] is None
        assert "max_model_len" not in served.get("/v1/models").json()["data"][0]


def test_a_truncated_answer() -> None:
    with Client(faults=Faults(truncate=1.0)) as served:
        answer = served.post("/v1/completions", {"prompt": TEXT, "seed": 1})
        assert answer.status == 200
        with pytest.raises(json.JSONDecodeError):
            answer.json()
        assert answer.text.startswith('{"id":"cmpl-')


def test_a_delayed_answer_has_the_same_text() -> None:
    with Client() as served:
        expected = asked(served)["choices"]
        served.post("/sim/faults", {"slow": 1.0})
        assert asked(served)["choices"] == expected


def test_metrics_under_load() -> None:
    with Client(Load(inter_token=1, slots=7)) as served:
        asked(served, n=3)
        asked(served, [[300] * 40, [301] * 40], max_tokens=1)
        lines = [line for line in served.get("/metrics").text.splitlines() if not line.startswith("#")]
    values = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
    tokens = len(tokenizer.encode(TEXT)) + 1
    assert values["sim:slots"] == 7
    assert values["sim:slot_seconds_total"] > 0
    assert values["vllm:prompt_tokens_total"] == values["vllm:prefix_cache_queries_total"] == 3 * tokens + 80
    assert values["vllm:prefix_cache_hits_total"] == 2 * (tokens // 16 * 16)
    finished = [line for line in lines if line.startswith("vllm:request_success_total")]
    assert len(finished) == len(REASONS)
    assert sum(float(line.rpartition(" ")[2]) for line in finished) == 5


def test_a_client_that_disconnects_frees_its_slots(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    arguments = ["--ready-file", str(ready), "--inter-token", "5000", "--slots", "2"]
    process = subprocess.Popen([sys.executable, "-m", "simulation", *arguments])

    def wait(values: dict[str, float]) -> None:
        """Wait until the metrics have these values."""
        deadline = time.monotonic() + 30
        while True:
            with urlopen(Request(f"http://127.0.0.1:{port}/metrics")) as response:
                lines = response.read().decode().splitlines()
            current = {
                name: float(line.rpartition(" ")[2]) for line in lines for name in values if line.startswith(name)
            }
            if current == values:
                return
            assert time.monotonic() < deadline, current
            time.sleep(0.02)

    try:
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        port = int(json.loads(ready.read_text())["port"])
        body = json.dumps({"prompt": TEXT, "n": 3, "max_tokens": 50}).encode()
        running, waiting = "vllm:num_requests_running", "vllm:num_requests_waiting{"
        aborted = 'vllm:request_success_total{engine="0",finished_reason="abort"'
        with socket.create_connection(("127.0.0.1", port)) as raw:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(body)}\r\n\r\n"
            raw.sendall(head.encode() + body)
            wait({running: 2, waiting: 1, aborted: 0})
        wait({running: 0, waiting: 0, aborted: 3})
    finally:
        process.terminate()
        process.wait(10)


def test_a_custom_question_of_a_bootstrap_is_answered() -> None:
    request = CompletionRequest("Is this text a story? Answer yes or no:", max_tokens=1, logprobs=20)
    response, _ = complete.complete(request, Engine(Load()))
    assert response.choices[0].logprobs is not None
    assert {" Yes", "Yes", "No"} <= set(response.choices[0].logprobs.top_logprobs[0])


@pytest.mark.parametrize(
    ("text", "stop", "most", "expected"),
    [
        ("one two#endblock", ("#endblock",), 50, ("one two", "stop", "#endblock")),
        ("one\n#q: two#endblock", ("#endblock", "\n#q: "), 50, ("one", "stop", "\n#q: ")),
        ("one two", ("#endblock",), 50, ("one two", "stop", None)),
        ("one two three", (), 2, ("one two", "length", None)),
        ("one two", "two", 50, ("one ", "stop", "two")),
    ],
)
def test_stop_strings(text: str, stop: Any, most: int, expected: tuple[str, str, str | None]) -> None:
    cut, _, finish, reason = complete.cut(text, stop, most)
    assert (cut, finish, reason) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": ""},
        {"model": "llama"},
        {"n": 0},
        {"max_tokens": 0},
        {"logprobs": 21},
        {"logprob_token_ids": [5]},
        {"logprobs": 1, "logprob_token_ids": [10**9]},
        {"logprobs": 1, "logprob_token_ids": list(range(129))},
        {"prompt": [10**9]},
    ],
)
def test_requests_that_vllm_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        complete.complete(CompletionRequest(**({"prompt": "x"} | wrong)), Engine(Load()))


def test_prompts_may_be_token_ids() -> None:
    ids = tokenizer.encode("def action_")
    one, _ = complete.complete(CompletionRequest(list(ids), seed=1), Engine(Load()))
    two, _ = complete.complete(CompletionRequest([list(ids), list(ids)], seed=1, n=2), Engine(Load()))
    text, _ = complete.complete(CompletionRequest("def action_", seed=1), Engine(Load()))
    assert one.choices[0].text == text.choices[0].text == two.choices[2].text
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3]
