"""The model client with the simulation, over real HTTP on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from simulation.complete import MAX_MODEL_LEN
from tests.support.raw_server import RawServer, answer, completion
from weavegen.errors import ModelError, TransientError, Unfit, UsageError
from weavegen.pool.client import MAX_STOPS, ModelClient
from weavegen.pool.served import serving

TRACE = """<s> [INST] #subagent main
#startblock type: observation
#index 2
#title Desk
# a lamp
#endblock

# write on [/INST]
#subagent main
#startblock type: action
#index 3
def action_"""
STOP = ("\n#q: ", "#endblock")


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a simulation in a process of its own. Returns the process and its URL."""
    ready = folder / "ready.json"
    process = subprocess.Popen([sys.executable, "-m", "simulation", "--ready-file", str(ready), *arguments])
    deadline = time.monotonic() + 30
    while not ready.exists():
        assert process.poll() is None, "the simulation ended"
        assert time.monotonic() < deadline, "the simulation does not start"
        time.sleep(0.02)
    return process, str(json.loads(ready.read_text())["url"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, url = start(tmp_path_factory.mktemp("sim"))
    yield url
    process.terminate()
    process.wait(10)


@pytest.fixture
def client(url: str) -> Iterator[ModelClient]:
    client = ModelClient(url, "EMPTY", None, timeout=20)
    yield client
    client.close()


@pytest.fixture
def faults(url: str) -> Iterator[Any]:
    """A function that sets fault rates. They are reset after the test."""

    def put(**rates: float) -> None:
        body = json.dumps(rates).encode()
        with urlopen(Request(url.removesuffix("/v1") + "/sim/faults", body, method="POST")) as response:
            assert response.status == 200

    yield put
    put()


def sample(client: ModelClient, prompt: str = TRACE, **options: Any) -> Any:
    numbers: dict[str, Any] = {"n": 3, "max_tokens": 400, "temperature": 1.0, "top_k": 50}
    numbers |= {"repetition_penalty": 1.02, "seed": 7, "stop": STOP}
    return client.sample(prompt, **(numbers | options)).continuations


def test_the_only_model_is_chosen(client: ModelClient) -> None:
    assert client.model == "weavegen-sim"


def test_a_server_without_the_wanted_model_is_unfit(url: str) -> None:
    with pytest.raises(Unfit, match="weavegen-sim"):
        sample(ModelClient(url, "EMPTY", "llama"))
    assert serving({url: "EMPTY"}, "weavegen-sim")[url].id == "weavegen-sim"


def test_no_server_is_listening() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(TransientError, match="no connection"):
            sample(ModelClient(url, "EMPTY", None))
        with pytest.raises(UsageError, match="vllm serve"):
            serving({url: "EMPTY"}, None)


def test_stop_strings_beyond_the_servers_four_are_cut_by_the_client(client: ModelClient) -> None:
    whole = sample(client, n=1, stop=())[0].text
    words = [f"never-{number}" for number in range(MAX_STOPS)]
    [cut] = sample(client, n=1, stop=[*words, whole[10:14]])
    assert cut.text == whole[: whole.index(whole[10:14])]
    assert cut.finish_reason == "stop"


def test_candidates(client: ModelClient) -> None:
    candidates = sample(client)
    assert len(candidates) == 3
    for candidate in candidates:
        assert candidate.finish_reason == "stop"
        assert candidate.text
        assert not any(stop in candidate.text for stop in STOP)
        assert candidate.token_ids
        assert len(candidate.token_ids) == len(candidate.logprobs)
        assert max(candidate.logprobs) <= 0
    assert candidates == sample(client)
    assert candidates != sample(client, seed=8)


def test_the_limit_on_tokens(client: ModelClient) -> None:
    (candidate,) = sample(client, n=1, max_tokens=5)
    assert candidate.finish_reason == "length"
    assert len(candidate.token_ids) == 5
    assert sample(client, n=1)[0].text.startswith(candidate.text)


def test_yes_no(client: ModelClient) -> None:
    good = (
        'def action_look(self):\n    found = os.listdir(".")\n'
        '    assert isinstance(found, list), "Is there a listing?"\n    return found\n\n'
        'self.add_action("Look around", action_look)'
    )
    bad = "def action_look(self)\n    return 1"
    context = TRACE.removesuffix("def action_")
    prompts = [f"{context}{body}\n#q: Is a coin fair? Yes. (50%)\n#q: Is this right? " for body in (good, bad)]
    answers = client.yes_no(prompts)
    assert answers[0].yes > 0.8
    assert answers[1].yes < 0.3
    assert all(0.98 < answer.yes + answer.no <= 1 for answer in answers)
    assert answers == client.yes_no(prompts)
    assert answers[:1] == client.yes_no(prompts[:1])
    assert client.yes_no([]) == []


def test_the_option_question_is_mostly_answered_no(client: ModelClient) -> None:
    context = TRACE.replace("type: action", "type: option").removesuffix("def action_")
    (answer,) = client.yes_no([context + "\n#q: Should the observation views be changed? "])
    assert answer.yes == pytest.approx(0.05, abs=0.01)


def test_tokens(client: ModelClient) -> None:
    assert client.encode("Yes").count == 1
    tokens = client.encode("one two three")
    assert (tokens.count, len(tokens.ids)) == (3, 3)
    assert "".join(map(client.word, tokens.ids)) == "one two three"
    nul = client.encode("one\x00two").ids  # which PostgreSQL does not accept
    assert "".join(map(client.word, nul)) == client.decode(nul) == "one\ufffdtwo"
    assert client.encode("one two", bos=True).ids == client.encode("<s>one two", bos=True).ids
    assert client.length == MAX_MODEL_LEN


def test_prompts_as_tokens_give_the_same_result_as_their_text(client: ModelClient) -> None:
    assert sample(client, client.encode(TRACE)) == sample(client)
    questions = [f"{TRACE}play\n#q: Is it {word}? " for word in ("fair", "right", "late")]
    assert client.yes_no([client.encode(text) for text in questions]) == client.yes_no(questions)
    result = client.sample(
        client.encode(TRACE), n=2, max_tokens=9, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=()
    )
    assert result.prompt_tokens == client.encode(TRACE).count


def test_a_prompt_that_is_too_long_is_a_permanent_error(client: ModelClient) -> None:
    with pytest.raises(ModelError, match=f"maximum context length is {MAX_MODEL_LEN}"):
        sample(client, "word " * MAX_MODEL_LEN)


def test_threads_share_a_client(client: ModelClient) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda seed: (sample(client, seed=seed), client.yes_no([TRACE])), [1, 2] * 8))
    assert results[0::2] == [results[0]] * 8
    assert results[1::2] == [results[1]] * 8


@pytest.mark.parametrize("fault", ["http_500", "http_429", "reset", "garbage", "hang"])
def test_faults_are_transient(url: str, faults: Any, fault: str) -> None:
    client = ModelClient(url, "EMPTY", None, timeout=1.5)
    faults(**{fault: 1.0})
    with pytest.raises(TransientError):
        sample(client)
    faults()
    assert sample(client)
    client.close()


def test_impossible_fault_rates_are_refused(url: str) -> None:
    body = json.dumps({"hang": 0.7, "reset": 0.7}).encode()
    with pytest.raises(OSError, match="400"):
        urlopen(Request(url.removesuffix("/v1") + "/sim/faults", body, method="POST"))


def test_metrics_have_the_names_of_vllm(url: str, client: ModelClient) -> None:
    def metrics() -> dict[str, float]:
        with urlopen(url.removesuffix("/v1") + "/metrics") as response:
            lines = [line for line in response.read().decode().splitlines() if not line.startswith("#")]
        return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}

    prompt = TRACE.replace("a lamp", "a lamp " * 2000)
    sample(client, prompt)
    before = metrics()
    sample(client, prompt)
    after = metrics()
    queried = after["vllm:prefix_cache_queries_total"] - before["vllm:prefix_cache_queries_total"]
    assert queried > 1000
    hits = after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"]
    assert queried - 3 * 17 <= hits < queried  # whole blocks of 16 tokens, and never the last token
    assert after["vllm:generation_tokens_total"] > before["vllm:generation_tokens_total"]
    assert after["vllm:num_requests_waiting"] == after["vllm:kv_cache_usage_perc"] == 0


def test_the_simulation_identifies_itself(url: str) -> None:
    with urlopen(url + "/models") as response:
        assert "simulation" in response.headers["Server"]
        assert "simulation" in json.load(response)["data"][0]["owned_by"]


def test_latency_and_a_port_in_use(tmp_path: Path) -> None:
    process, url = start(tmp_path, "--inter-token", "2", "--slots", "1")
    client = ModelClient(url, "EMPTY", None)
    began = time.monotonic()
    candidates = sample(client, n=2, max_tokens=40)
    assert time.monotonic() - began > 0.002 * sum(len(candidate.token_ids) for candidate in candidates)
    client.close()
    port = url.removesuffix("/v1").rpartition(":")[2]
    second = subprocess.run([sys.executable, "-m", "simulation", "--port", port], capture_output=True, text=True)
    assert second.returncode == 2
    assert "give another port" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    os.kill(process.pid, signal.SIGTERM)
    process.wait(10)


# -------------------------------------------------------------- servers with fewer features than vLLM


class Plain(BaseHTTPRequestHandler):
    """A server without `/tokenize` and `logprob_token_ids`, or one that refuses the latter."""

    refuses = False
    tokenizes = True

    def do_GET(self) -> None:
        self.answer(200, {"data": [{"id": "one"}, {"id": "two"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            status = 200 if self.tokenizes else 404
            self.answer(status, {"count": 1, "tokens": [len(asked["prompt"]) + 10 * asked["prompt"].count("o")]})
        elif "logprob_token_ids" in asked and self.refuses:
            self.answer(400, {"error": {"message": "logprob_token_ids: extra fields not permitted"}})
        else:
            logprobs = {"tokens": ["Yes"], "token_logprobs": [-0.5], "top_logprobs": [{"Yes": -0.5, "no": -1.5}]}
            choice = {"index": 0, "text": "Yes", "finish_reason": "length", "logprobs": logprobs}
            self.answer(200, {"choices": [choice]})

    def answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing, because output should only come from failures."""


def test_after_its_rest_a_server_may_have_another_tokenizer() -> None:
    class Shifting(Plain):
        shift = 0

        def answer(self, status: int, value: dict[str, Any]) -> None:
            if self.path == "/tokenize":
                value = {"count": 1, "tokens": [value["tokens"][0] + self.shift]}
            if self.path == "/detokenize":
                value = {"prompt": f"word {self.shift}"}
            super().answer(status, value)

    with ThreadingHTTPServer(("127.0.0.1", 0), Shifting) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            client = ModelClient(f"http://127.0.0.1:{server.server_port}/v1", "EMPTY", "two")
            assert client.tokenizer
            before = client.encode("abc").ids, client.word(7), client._find_sides()
            Shifting.shift = 1000
            client.probe(5)
            assert client.encode("abc").ids == [before[0][0] + 1000]
            assert (before[1], client.word(7)) == ("word 0", "word 1000")
            assert client._find_sides() == {id + 1000: side for id, side in before[2].items()}
            client.close()
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("refuses", "tokenizes"), [(True, True), (False, True), (False, False)])
def test_a_server_without_vllms_extensions(refuses: bool, tokenizes: bool) -> None:
    handler = type("Handler", (Plain,), {"refuses": refuses, "tokenizes": tokenizes})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1"
            with pytest.raises(UsageError, match="one, two"):
                serving({url: "EMPTY"}, None)
            client = ModelClient(url, "EMPTY", "two")
            for _ in range(2):
                (answer,) = client.yes_no(["Is it?"])
                assert answer.yes == pytest.approx(0.6065, abs=1e-4)
                assert answer.no == pytest.approx(0.2231, abs=1e-4)
            client.close()
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("logprobs", "tokens"),
    [
        (None, [3, 9]),
        ({"tokens": [], "token_logprobs": []}, [3, 9]),
        ({"tokens": ["Y", "es"], "token_logprobs": [-1.0, -1.0]}, [2, 2]),
    ],
    ids=["none", "empty", "words"],
)
def test_tokens_are_counted_where_the_server_tells_no_ids(logprobs: Any, tokens: list[int]) -> None:
    """By the tokens that it lists, or as shares of those that it counted."""

    def reply(request: dict[str, Any]) -> bytes:
        choices = completion(request, logprobs=logprobs)["choices"]
        choices[1]["text"] = "Yes, it is."
        return answer({"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 12}})

    with RawServer(reply) as server:
        client = ModelClient(server.url, "EMPTY", None)
        sampled = sample(client, n=2)
        client.close()
    assert [one.tokens for one in sampled] == tokens
    assert [one.token_ids for one in sampled] == [None, None]
