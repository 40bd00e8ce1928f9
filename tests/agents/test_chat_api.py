"""Agents that converse with a server that has only OpenAI's chat API. The server is simulated."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from simulation.process import Process
from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.nano_server import serving
from tests.support.raw_server import RawServer, answer
from weavegen.errors import Busy, ModelError, TransientError, Unfit
from weavegen.pool.chat import SAMPLES, ChatClient
from weavegen.pool.metering import metered
from weavegen.trace.blocks import BlockType
from weavegen_nano import WEIGHTS

SAID = [(BlockType.USER, "Hello")]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def usage(server: Process) -> dict[str, int]:
    """What the server reports to have served."""
    with urllib.request.urlopen(f"{server.url.removesuffix('/v1')}/sim/usage", timeout=10) as answer:
        return dict(json.load(answer))


def set_faults(server: Process, **rates: float) -> None:
    """Replace the rates of the server's faults."""
    request = urllib.request.Request(f"{server.url.removesuffix('/v1')}/sim/faults", json.dumps(rates).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    one = Process(tmp_path_factory.mktemp("chat"), "chat", "--port", "0", "--chat")
    yield one
    one.kill()


@pytest.fixture(scope="module")
def installation(server: Process) -> Iterator[Installation]:
    with installed(OPENAI_BASE_URL=server.url, WEAVEGEN_PRICES="weavegen-sim=2/10") as one:
        yield one


def test_fifty_tasks_end_and_the_ledger_has_the_servers_tokens(installation: Installation, server: Process) -> None:
    before = usage(server)
    rows = installation.json("run", "--agent", "react", "--task", "Write a list.", "-n", "50", "--seed", "5")
    assert {(row["status"], row["result"]) for row in rows} == {("ended", "success")}
    after = usage(server)
    served = {name: after[name] - before[name] for name in after}
    sums = "select sum(requests), sum(prompt_tokens), sum(sampled_tokens), sum(uncounted) from model_usage"
    [counted] = installation.sql(sums)
    assert counted == (served["requests"], served["prompt_tokens"], served["completion_tokens"], 0)
    [[cost]] = installation.sql("select sum(cost) from pool_usage")
    assert cost == pytest.approx((served["prompt_tokens"] * 2 + served["completion_tokens"] * 10) / 1e6)


def test_a_rate_limit_loses_nothing(installation: Installation, server: Process) -> None:
    set_faults(server, http_429=0.1)
    try:
        rows = installation.json("run", "--agent", "react", "--task", "Write a list.", "-n", "20", "--seed", "6")
    finally:
        set_faults(server)
    assert {(row["status"], row["result"]) for row in rows} == {("ended", "success")}
    [[busy]] = installation.sql("select coalesce(sum(errors), 0) from server_health where kind = 'busy'")
    assert busy > 0, "no request met the rate limit"


def test_messages_have_their_tokens_and_finish_reasons(installation: Installation) -> None:
    query = "select c.finish_reason, c.tokens > 0, c.token_ids is null from candidates c"
    assert set(installation.sql(query)) == {("stop", True, True)}
    [[replies]] = installation.sql("select sum(replies) from conversations")
    assert replies > 100


def test_prompts_that_the_server_made_itself_are_not_called_exact(installation: Installation, tmp_path: Path) -> None:
    told = installation.json("export", "--format", "sft", "--out", tmp_path / "out")
    [file] = (tmp_path / "out").rglob("*.parquet")
    rows = pyarrow.parquet.read_table(file, columns=["exact_prompt"]).to_pylist()
    assert {row["exact_prompt"] for row in rows} == {False}
    said = f"In {told['rows']['train']} rows: a chat API applied its own template"
    assert said in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("agent", "task"),
    [
        ("research", "Which openings won?"),
        ("funsearch", ROOT / "bootstraps" / "tasks" / "cap_set.json"),
        ("toolsmith", "Which words are most frequent in the text?"),
    ],
)
def test_the_other_agents_run(installation: Installation, agent: str, task: str | Path) -> None:
    given = [str(task), "--ticks", "2"] if isinstance(task, Path) else ["--task", task]
    rows = installation.json("run", "--agent", agent, *given, "--seed", "2")
    assert [row["status"] for row in rows] == ["ended"]


def test_weave_is_refused_in_one_line(installation: Installation, server: Process) -> None:
    done = installation.cli("enqueue", TICTACTOE)
    assert done.returncode == 2
    assert done.stderr == (
        f"weavegen: {server.url} has only the chat API: for weave and planning use vLLM or llama.cpp, which "
        "have logprobs; or give --agent, one of react, research, funsearch, toolsmith\n"
    )


def test_weave_runs_beside_a_chat_api_that_it_does_not_need(installation: Installation) -> None:
    with serving(WEIGHTS) as url:
        installation.json("pool", "add", url)
        try:
            models = ("--model", "agent=weavegen-nano", "--model", "researcher=weavegen-sim")
            rows = installation.json("run", TICTACTOE, "--ticks", "1", "--seed", "3", *models)
            assert [row["status"] for row in rows] == ["ended"]
            judged = ("--model", "agent=weavegen-nano", "--model", "evaluator=weavegen-sim")
            done = installation.cli("enqueue", TICTACTOE, *judged)
            assert (done.returncode, "has only the chat API" in done.stderr) == (2, True)
        finally:
            installation.json("pool", "remove", url)


def test_the_audit_is_clean(installation: Installation) -> None:
    done = installation.cli("audit")
    assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------------------------------------ the client


def test_parameters_that_a_server_refuses_are_left_out(server: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ChatClient(server.url, "EMPTY")
    request, asked = client._request, []

    def strict(options: dict[str, object]) -> object:
        asked.append(options)
        for name in ("seed", "n", "tools"):
            if name in options:
                raise ModelError(f"400: Unrecognized request argument supplied: '{name}'")
        return request(options)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "_request", strict)
    answer = client.sample("weavegen-sim", SAID, n=3, seed=1)
    assert len(answer.continuations) == 3
    assert not {"seed", "n"} & asked[-1].keys()
    client.close()


def test_questions_are_answered_by_logprobs_or_by_samples(server: Process) -> None:
    client = ChatClient(server.url, "EMPTY")
    [exact] = client.yes_no("weavegen-sim", SAID, ["Is it so?"])
    assert 0 < exact.yes < 1
    assert exact.yes + exact.no == pytest.approx(1, abs=0.05)
    client.close()


def test_without_logprobs_a_question_is_asked_several_times(server: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ChatClient(server.url, "EMPTY")
    request, asked = client._request, []

    def strict(options: dict[str, object]) -> object:
        asked.append(options)
        if "logprobs" in options:
            raise ModelError("400: logprobs are not supported")
        answer = request(options)  # type: ignore[arg-type]
        for number, choice in enumerate(answer.choices):
            choice.message.content = "No." if number == 2 else "Yes, it is."
        return answer

    monkeypatch.setattr(client, "_request", strict)
    for expected in (2, 1):  # the refusal is remembered
        asked.clear()
        [answer] = client.yes_no("weavegen-sim", SAID, ["Is it so?"])
        assert len(asked) == expected
        assert answer.yes == pytest.approx((SAMPLES - 0.5) / (SAMPLES + 1))
    client.close()


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_model_that_thinks_before_its_answer_is_let_think(field: str) -> None:
    """Its first token begins a thought, so the logprobs say nothing. Some servers return the thought apart."""
    likely = [{"token": "<think>", "logprob": -0.7}, {"token": "Yes", "logprob": -4.0}]  # half of it is not listed
    token = likely[0] | {"top_logprobs": likely}

    def reply(request: dict[str, Any]) -> bytes:
        if "logprobs" in request:
            message = WELL | {"content": "<think>"}
            return answer({"choices": [{"index": 0, "message": message, "logprobs": {"content": [token]}}]})
        thought = "No, wait. It says so, " + "doesn't it? " * 50
        apart = {"content": "Yes.", field: thought} if field != "content" else {field: f"<think>{thought}</think>Yes."}
        cut = {"content": f"<think>{thought}"[: 4 * request["max_tokens"]]}  # a token has about four characters
        whole = WELL | (apart if len(thought) < 4 * request["max_tokens"] else cut)
        return answer({"choices": [{"index": index, "message": whole} for index in range(request["n"])]})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        for _ in range(2):
            [judged] = client.yes_no("served", SAID, ["Is it so?"])
            assert judged.yes == pytest.approx((SAMPLES + 0.5) / (SAMPLES + 1))
        client.close()


def test_errors_of_the_server_are_those_of_other_requests(tmp_path: Path) -> None:
    kinds = {"http-429": Busy, "http-500": TransientError, "garbage": TransientError, "reset": TransientError}
    for fault, expected in kinds.items():
        server = Process(tmp_path, fault, "--port", "0", "--chat", f"--fault-{fault}", "1.0")
        client = ChatClient(server.url, "EMPTY", timeout=10)
        with pytest.raises(expected) as raised:
            client.sample("weavegen-sim", SAID)
        if isinstance(raised.value, Busy):
            assert raised.value.seconds == 1
        client.close()
        server.kill()


WELL = {"role": "assistant", "content": "Yes", "refusal": None}
MALFORMED = {
    "no JSON": b"{",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "no choices": {},
    "choices are null": {"choices": None},
    "no choice": {"choices": []},
    "a choice is a number": {"choices": [1]},
    "two choices": {"choices": [{"index": 0, "message": WELL}, {"index": 1, "message": WELL}]},
    "no message": {"choices": [{"index": 0}]},
    "content is a number": {"choices": [{"index": 0, "message": WELL | {"content": 7}}]},
    "a part is a number": {"choices": [{"index": 0, "message": WELL | {"content": [7]}}]},
    "a part's text is a number": {"choices": [{"index": 0, "message": WELL | {"content": [{"text": 7}]}}]},
    "calls are a number": {"choices": [{"index": 0, "message": WELL | {"tool_calls": 3}}]},
    "a call has no function": {"choices": [{"index": 0, "message": WELL | {"tool_calls": [{"type": "function"}]}}]},
    "a huge number": b'{"choices": [{"index": 0, "message": {"content": 1' + b"0" * 5000 + b"}}]}",
    "nothing": b"",
}
HARMLESS = {
    "usage is text": {"usage": "much"},
    "usage is negative": {"usage": {"prompt_tokens": -5, "completion_tokens": 1}},
    "usage is huge": {"usage": {"prompt_tokens": 10**30, "completion_tokens": 1}},
    "a refusal is a number": {"choices": [{"index": 0, "message": WELL | {"refusal": 5}}]},
    "the finish reason is a number": {"choices": [{"index": 0, "message": WELL, "finish_reason": 5}]},
    "unknown fields": {"choices": [{"index": 0, "message": WELL | {"audio": {"id": 1}}, "more": []}]},
}


def chatting(body: bytes | dict[str, object]) -> RawServer:
    raw = RawServer(lambda _: answer(body))
    raw.paths = ("/v1/chat/completions",)
    return raw


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_answer_is_a_failure_of_the_server(kind: str) -> None:
    with chatting(MALFORMED[kind]) as raw:  # type: ignore[arg-type]
        client = ChatClient(raw.url, "EMPTY", timeout=10)
        with pytest.raises(TransientError):
            client.sample("raw", SAID)
        client.close()


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_not_needed_may_be_wrong(kind: str) -> None:
    with chatting({"choices": [{"index": 0, "message": WELL}]} | HARMLESS[kind]) as raw:
        client = ChatClient(raw.url, "EMPTY", timeout=10)
        answer = client.sample("raw", SAID)
        assert [reply.text for reply in answer.continuations] == ["Yes"]
        assert answer.prompt_tokens is None
        client.close()


def test_messages_of_one_request_share_its_tokens() -> None:
    """Else the budget of sampled tokens would never be used up."""
    choices = [{"index": index, "message": WELL} for index in range(4)]
    with chatting({"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 10}}) as raw:
        client = ChatClient(raw.url, "EMPTY")
        tokens = [reply.tokens or 0 for reply in client.sample("raw", SAID, n=4).continuations]
        client.close()
    assert (sorted(tokens), sum(tokens)) == ([2, 2, 3, 3], 10)


def test_a_message_may_come_in_parts() -> None:
    """Mistral's models that think send their thoughts as a part."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]}
    content = [thought, {"type": "text", "text": "There are "}, {"type": "text", "text": "12."}]
    with chatting({"choices": [{"index": 0, "message": WELL | {"content": content}}]}) as raw:
        client = ChatClient(raw.url, "EMPTY")
        [reply] = client.sample("raw", SAID).continuations
        client.close()
    assert reply.text == "<think>I look.</think>\nThere are 12."


def test_arguments_may_be_an_object() -> None:
    """So text-generation-inference and koboldcpp send them."""
    called = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}
    with chatting({"choices": [{"index": 0, "message": WELL | called}]}) as raw:
        client = ChatClient(raw.url, "EMPTY")
        [reply] = client.sample("raw", SAID).continuations
        client.close()
    assert reply.text == 'Yes\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize("broken", [{"finish_reason": "error"}, {"finish_reason": "abort"}, {"error": {"code": 502}}])
def test_a_message_that_broke_off_is_no_answer(broken: dict[str, object]) -> None:
    """OpenRouter tells so that a provider failed, vLLM that it shuts down."""
    body = {"choices": [{"index": 0, "message": WELL, "finish_reason": "stop"} | broken], "usage": USAGE}
    with chatting(body) as raw:
        client = ChatClient(raw.url, "EMPTY")
        with metered() as usage, pytest.raises(TransientError, match="ended a message early"):
            client.sample("raw", SAID)
        client.close()
    assert usage.requests == 1, "the ledger has it, too"


THINKING = "The `reasoning_content` in the thinking mode must be passed back to the API."
CONVERSATION = [
    (BlockType.SYSTEM, '<tools>\n{"type": "function", "function": {"name": "f"}}\n</tools>'),
    *SAID,
    (BlockType.ASSISTANT, '<think>I look.</think>\nSo:\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    (BlockType.TOOL, '<tool_response>{"success": true}</tool_response>'),
]


@pytest.mark.parametrize("known", [True, False])
def test_thoughts_go_back_in_the_field_in_which_they_came(known: bool) -> None:
    """DeepSeek's API refuses tool calls without them, also in the first request of a new worker."""
    asked: list[dict[str, Any]] = []

    def reply(request: dict[str, Any]) -> bytes:
        asked.append(request)
        called = [message for message in request["messages"] if "tool_calls" in message]
        if any("reasoning_content" not in message for message in called):
            return answer({"error": {"message": THINKING}}, "400 Bad Request")
        return answer({"choices": [{"index": 0, "message": WELL | {"reasoning_content": "I think."}}]})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        if known:
            client.sample("raw", CONVERSATION[:2])
        [written] = client.sample("raw", CONVERSATION).continuations
        client.close()
    assert written.text == "<think>I think.</think>\nYes"
    assert len(asked) == 2
    [sent] = [message for message in asked[-1]["messages"] if "tool_calls" in message]
    assert (sent["reasoning_content"], sent["content"]) == ("I look.", "So:")
    assert "tools" in asked[-1]


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        ("404 Not Found", "No endpoints found that support tool use. To learn more, visit https://openrouter.ai/docs"),
        ("400 Bad Request", "registry.ollama.ai/library/gemma:latest does not support tools"),
        ("400 Bad Request", "`tool calling` is not supported with this model"),
        ("400 Bad Request", "This model only supports single tool-calls at once!"),
        ("400 Bad Request", "tools param requires --jinja flag"),
    ],
)
def test_tools_that_a_server_refuses_stay_in_the_text(status: str, refusal: str) -> None:
    def reply(request: dict[str, Any]) -> bytes:
        if "tools" in request:
            return answer({"error": {"message": refusal}}, status)
        return answer({"choices": [{"index": 0, "message": WELL}]})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        for requests in (2, 3):
            assert client.sample("raw", CONVERSATION).continuations[0].text == "Yes"
            assert raw.requests == requests, "the refusal is remembered"
        client.close()


@pytest.mark.parametrize(
    "refusal", ["messages with role 'tool' must follow 'tool_calls'", "Invalid 'tools[0].function.name': too long"]
)
def test_a_faulty_message_of_a_tool_is_no_refusal_of_tools(refusal: str) -> None:
    with RawServer(lambda _: answer({"error": {"message": refusal}}, "400 Bad Request")) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        for _ in range(2):
            with pytest.raises(ModelError, match="tool"):
                client.sample("raw", CONVERSATION)
        client.close()
    assert raw.requests == 2


def test_a_refusal_is_a_message(monkeypatch: pytest.MonkeyPatch, server: Process) -> None:
    client = ChatClient(server.url, "EMPTY")
    real = client._request

    def refuses(options: dict[str, object]) -> object:
        answer = real(options)  # type: ignore[arg-type]
        answer.choices[0].message.refusal = "I can't help with that."
        return answer

    monkeypatch.setattr(client, "_request", refuses)
    [reply] = client.sample("weavegen-sim", SAID).continuations
    assert (reply.text, reply.finish_reason) == ("I can't help with that.", "refusal")
    client.close()


def test_threads_share_a_client(server: Process) -> None:
    client = ChatClient(server.url, "EMPTY")
    texts: list[str] = []

    def ask() -> None:
        texts.extend(client.sample("weavegen-sim", SAID, seed=1).continuations[0].text for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 80
    assert len(set(texts)) == 1
    client.close()


def test_a_wrong_address_is_no_fault_of_the_request() -> None:
    with RawServer() as raw:
        client = ChatClient(raw.url, "EMPTY")
        with pytest.raises(Unfit, match=r"answered 404: not here \(check the address of the server"):
            client.sample("served", SAID)
        with pytest.raises(Unfit, match="check the address"):
            client.yes_no("served", SAID, ["Is it so?"])
        client.close()


@pytest.mark.parametrize("refusal", [None, "Only one completion choice is allowed"])
def test_a_server_that_writes_one_message_is_asked_for_each(refusal: str | None) -> None:
    """Some servers ignore `n`, and llama.cpp refuses it without naming it."""
    asked: list[dict[str, object]] = []

    def reply(request: dict[str, object]) -> bytes:
        asked.append(request)
        if refusal is not None and request.get("n", 1) != 1:
            return answer({"error": {"message": refusal}}, "400 Bad Request")
        usage = {"prompt_tokens": 5, "completion_tokens": 2}
        return answer({"choices": [{"index": 0, "message": WELL}], "usage": usage})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        with metered() as usage:
            for _ in range(2):
                assert len(client.sample("served", SAID, n=3, seed=4).continuations) == 3
        client.close()
    assert [(request.get("n"), request["seed"]) for request in asked] == [
        (3, 4),
        *[(None, 4), (None, 5), (None, 6)] * 2,
    ]
    assert usage.requests == usage.sequences == (7 if refusal is None else 6), "every answer is in the ledger"


def test_messages_that_are_requested_one_by_one_are_not_requested_again() -> None:
    """When one fails, the pool calls again. The first call asks for all at once, and for its first three."""
    seeds: list[object] = []

    def reply(request: dict[str, object]) -> bytes:
        seeds.append(request["seed"])
        if len(seeds) == 4:
            return answer({"error": {"message": "overloaded"}}, "503 Service Unavailable")
        return answer({"choices": [{"index": 0, "message": WELL | {"content": str(len(seeds))}}], "usage": USAGE})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "EMPTY")
        with metered() as failed, pytest.raises(Busy):
            client.sample("raw", SAID, n=4, seed=7)
        with metered() as usage:
            told = [reply.text for reply in client.sample("raw", SAID, n=4, seed=7).continuations]
            other = [reply.text for reply in client.sample("raw", SAID, n=2, seed=9).continuations]
            again = [reply.text for reply in client.sample("raw", SAID, n=2, seed=7).continuations]
        client.close()
    assert seeds == [7, 7, 8, 9, 9, 10, 9, 10, 7, 8]
    assert told + other + again == ["2", "3", "5", "6", "7", "8", "9", "10"]
    assert (failed.requests, usage.requests) == (3, 6)


def test_a_limit_on_tokens_has_the_name_that_the_server_wants() -> None:
    """OpenAI's newer models refuse `max_tokens`, logprobs, and every temperature but the default."""
    asked: list[dict[str, object]] = []

    def reply(request: dict[str, Any]) -> bytes:
        asked.append(request)
        for name, refusal in {
            "max_tokens": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            "temperature": "'temperature' does not support 0.5. Only the default (1) value is supported.",
            "logprobs": "You are not allowed to request logprobs from this model.",
        }.items():
            if name in request and (name, request[name]) != ("temperature", 1):
                return answer({"error": {"message": refusal}}, "400 Bad Request")
        return answer({"choices": [{"index": index, "message": WELL} for index in range(request.get("n", 1))]})

    with RawServer(reply) as raw:
        raw.paths = ("/v1/chat/completions",)
        for judges in (False, True):
            client = ChatClient(raw.url, "EMPTY")
            for _ in range(2):
                if judges:
                    assert client.yes_no("served", SAID, ["Is it so?"], room=50)[0].yes > 0.9
                    assert asked[-1]["max_completion_tokens"] == 50, "a prompt and its answer fit into the context"
                else:
                    client.sample("served", SAID, max_tokens=7, temperature=0.5)
                    assert asked[-1]["max_completion_tokens"] == 7
            client.close()
            assert sum("max_tokens" in request for request in asked[: len(asked) // 2]) >= 1
            assert not any("max_tokens" in request for request in asked[len(asked) // 2 :]), "the refusal is remembered"
            asked.clear()


def test_a_wrong_key_is_no_fault_of_the_request() -> None:
    with RawServer(lambda _: answer({"error": {"message": "bad key"}}, "401 Unauthorized")) as raw:
        raw.paths = ("/v1/chat/completions",)
        client = ChatClient(raw.url, "secret-key")
        with pytest.raises(Unfit):
            client.sample("served", SAID)
        client.close()
