"""What a model server can do, found with short requests, and which agents and features that allows."""

import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.kernel.template import PLAIN
from weavegen.pool import metrics
from weavegen.pool.client import ModelClient
from weavegen.pool.http import Http
from weavegen.pool.served import ServedModel, list_models, pick_model
from weavegen.pool.tokens import Logprobs

SECONDS = 30.0
"""Time limit of a request for one token. A server may have to load its model first."""
LISTED = (128, 20, 5, 1)
"""Numbers of logprobs to ask for, one after the other, until the server gives that many."""
MESSAGES = [{"role": "user", "content": "Hello"}]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one model on one server can do. Each field is the answer to a request."""

    model: str
    length: int | None
    """Maximum tokens of a prompt and its continuation; None: the server does not say."""
    completions: bool
    """`/v1/completions` with text."""
    chat: bool
    """`/v1/chat/completions`."""
    prompt_ids: bool
    """Prompts of token ids, and `/tokenize`, which makes them."""
    template: bool
    """`/tokenize` with messages: the server tells the model's chat template."""
    token_ids: bool
    """The ids of sampled tokens, with their logprobs."""
    logprobs: int
    """Likeliest tokens that the server lists, of LISTED; 0: none."""
    exact: bool
    """Logprobs of tokens that the client names (`logprob_token_ids`)."""
    sampling: bool
    """The parameters top_k, repetition_penalty and seed."""
    priority: bool
    """The parameter priority orders waiting requests."""
    adapters: bool
    """LoRA adapters can be loaded at run time."""
    metrics: bool
    """`/metrics` in vLLM's form."""


@dataclass(frozen=True)
class Feature:
    """A part of weavegen that depends on capabilities, as features.toml declares it."""

    name: str
    needs: tuple[str, ...]
    """Fields of Capabilities. An entry may list alternatives, separated by |."""
    without: str
    """What happens where they are missing."""
    agents: bool = False

    def missing(self, has: Capabilities) -> list[str]:
        """The needs that the server does not meet."""
        return [need for need in self.needs if not any(getattr(has, field) for field in need.split("|"))]


DECLARED = tomllib.loads((Path(__file__).parent / "features.toml").read_text())
FEATURES = msgspec.convert(DECLARED["features"], tuple[Feature, ...])


def probe(url: str, key: str, model: str | None = None) -> Capabilities:
    """Find out what a server can do, with about thirty requests. Raises TransientError, ModelError, UsageError."""
    with closing(Http(key, SECONDS)) as http:
        served = pick_model(model, list_models(url, http), url)
        with closing(ModelClient(url, key, served.id, timeout=SECONDS)) as client:
            return _Probe(url, http, served, client).run()


def probe_all(keys: Mapping[str, str]) -> dict[str, Capabilities | str]:
    """Probe servers at the same time. `keys`: API keys by URL. Returns the reason for a server that can't be probed."""

    def one(url: str) -> Capabilities | str:
        try:
            return probe(url, keys[url])
        except (TransientError, ModelError, UsageError) as error:
            return " ".join(str(error).split())

    with ThreadPoolExecutor(max(1, len(keys))) as threads:
        return dict(zip(keys, threads.map(one, keys), strict=True))


def lacks(has: Capabilities) -> list[str]:
    """What is missing, one line each: the feature, and what follows without it."""
    return [f"{feature.name}: {feature.without}" for feature in FEATURES if feature.missing(has)]


class _Probe:
    """The requests to one server."""

    def __init__(self, url: str, http: Http, served: ServedModel, client: ModelClient) -> None:
        self._url, self._http, self._served, self._client = url.rstrip("/"), http, served, client
        self._root = self._url.removesuffix("/v1")

    def run(self) -> Capabilities:
        completions = self._complete() is not None
        ids, as_ids = list(dict.fromkeys(self._client.tokenizer)), {"return_tokens_as_token_ids": True}
        named = {f"token_id:{token}" for token in ids}
        listed = next((count for count in LISTED if completions and len(self._top(count)) >= min(count, 5)), 0)
        sampled = self._complete(logprobs=0, **as_ids) if completions else None
        tokens = _logprobs(sampled).tokens
        return Capabilities(
            model=self._served.id,
            length=self._served.length,
            completions=completions,
            # Some servers refuse `max_tokens`.
            chat=any(self._choice("/chat/completions", messages=MESSAGES, **cap) for cap in ({"max_tokens": 1}, {})),
            prompt_ids=bool(ids) and completions and self._complete(prompt=ids) is not None,
            template=self._client.template() is not PLAIN,
            token_ids=bool(tokens) and all(token.startswith("token_id:") for token in tokens),
            logprobs=listed,
            exact=listed > 0 and bool(ids) and named <= self._top(1, logprob_token_ids=ids, **as_ids).keys(),
            sampling=completions and self._complete(top_k=20, repetition_penalty=1.02, seed=1) is not None,
            priority=completions and self._complete(priority=1) is not None and self._complete(priority=-1) is not None,
            adapters=self._loads_adapters(),
            metrics=self._has_metrics(),
        )

    def _post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON of an answer; empty where the server refuses the request or lacks the address."""
        try:
            return self._http.post(url, {"model": self._served.id} | body, dict[str, Any])
        except ModelError:
            return {}

    def _choice(self, path: str, **body: Any) -> dict[str, Any] | None:
        """The first choice of an answer; None where there is none."""
        choices = self._post(f"{self._url}{path}", body).get("choices")
        return choices[0] if choices else None

    def _complete(self, prompt: Any = "Yes or no? ", **options: Any) -> dict[str, Any] | None:
        """One token; None where the server refuses the options."""
        return self._choice("/completions", prompt=prompt, max_tokens=1, **options)

    def _top(self, count: int, **options: Any) -> dict[str, float]:
        """The logprobs of the `count` likeliest tokens, as far as the server lists them."""
        return _logprobs(self._complete(logprobs=count, temperature=0.0, **options)).top

    def _loads_adapters(self) -> bool:
        """Whether the server loads adapters. A missing adapter gives another error than a missing address."""
        try:
            self._http.send(f"{self._url}/load_lora_adapter", {"lora_name": "", "lora_path": ""})
        except ModelError as error:
            return error.__class__ is ModelError
        except TransientError:
            return False
        return True

    def _has_metrics(self) -> bool:
        try:
            metrics.read(self._url, self._http)
        except (ModelError, TransientError):
            return False
        return True


def _logprobs(choice: dict[str, Any] | None) -> Logprobs:
    return Logprobs.read((choice or {}).get("logprobs"))
