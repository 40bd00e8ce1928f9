"""Creates the response to a completion request. No I/O and no clock."""

import math
import random
import secrets
from dataclasses import dataclass
from functools import lru_cache

from simulation import MODEL, batch, tokenizer
from simulation.cache import Prompt
from simulation.load import Engine
from simulation.parameters import Load
from simulation.policies import answer, write
from simulation.policies.situation import Situation, asked, read
from weavegen_nano import protocol
from weavegen_nano.protocol import BadRequest, Choice, CompletionRequest

MAX_MODEL_LEN = Load.max_model_len
"""The default of the request's field."""
_UNLIKELY = -25.0
"""Logprob of every token that the simulated distribution does not name."""
_BOS = tokenizer.pack([tokenizer.BOS])
_SPELLINGS = {True: ("Yes", " Yes", "yes", "YES"), False: ("No", " No", "no", "NO")}
_SHARES = (0.9, 0.06, 0.03, 0.01)
_OTHER = {tokenizer.single(word): share for word, share in (("It", 0.5), ("The", 0.3), ("I", 0.2))}
_OTHER_MASS = 0.01


@dataclass(frozen=True)
class _Prompt:
    text: str
    tokens: Prompt


def _prompts(request: CompletionRequest) -> list[_Prompt]:
    """The request's prompts, as text and as tokens."""
    try:
        return [_prompt(item, request.add_special_tokens) for item in protocol.prompts(request)]
    except IndexError as error:
        raise BadRequest(f"Token id {error} is out of vocabulary", param="prompt") from None


def _prompt(item: str | list[int], special: bool) -> _Prompt:
    if isinstance(item, str):
        text, data = item, (_BOS if special else b"") + tokenizer.packed(item)
    else:
        data = tokenizer.pack(item)
        text = tokenizer.decode_packed(data)
    if not data:
        raise BadRequest("The decoder prompt cannot be empty", param="prompt")
    return _Prompt(text, Prompt(data))


def without_extras(request: CompletionRequest) -> None:
    """Treat the request like a server without vLLM's fields: refuse or ignore them. Raises BadRequest."""
    if isinstance(request.prompt, list) and any(not isinstance(item, str) for item in request.prompt):
        raise BadRequest("prompt: token ids are not supported, send text", param="prompt")
    if request.logprob_token_ids is not None:
        message = "Unrecognized request argument supplied: logprob_token_ids"
        raise BadRequest(message, param="logprob_token_ids")
    request.add_special_tokens, request.return_tokens_as_token_ids, request.priority = True, None, 0


def complete(request: CompletionRequest, engine: Engine) -> tuple[protocol.CompletionResponse, list[batch.Sequence]]:
    """The response, and the sequences that the engine must process before it is sent. Raises BadRequest."""
    load = engine.load
    protocol.check(request, [MODEL], tokenizer.SIZE, priorities=load.scheduling_policy == "priority")
    seed = secrets.randbits(62) if request.seed is None else request.seed
    choices: list[Choice] = []
    work: list[batch.Sequence] = []
    prompts = _prompts(request)
    rooms = [protocol.max_new_tokens(request, prompt.tokens.tokens, load.max_model_len) for prompt in prompts]
    generated = 0
    for prompt, most in zip(prompts, rooms, strict=True):
        situation = read(prompt.text)
        if situation.question is None and most == 1 and request.logprobs is not None:
            situation = asked(situation)  # only the evaluator requests a single token with logprobs
        for number in range(request.n):
            if situation.question is not None:
                choice, ids = _answer(request, situation, len(choices), seed + number)
            else:
                choice, ids = _write(request, situation, len(choices), most, seed, number)
            choices.append(choice)
            generated += len(ids)
            output = tokenizer.pack(ids)
            work.append(batch.Sequence(prompt.tokens, output, choice.finish_reason, request.priority))
    prompt_tokens = sum(prompt.tokens.tokens for prompt in prompts)
    usage = protocol.Usage(prompt_tokens, prompt_tokens + generated, generated)
    return protocol.CompletionResponse(choices=choices, usage=usage, model=MODEL, system_fingerprint=MODEL), work


def tell_cached(response: protocol.CompletionResponse, work: list[batch.Sequence], n: int) -> None:
    """Add the number of cached prompt tokens to a response: like vLLM, of the last prompt only."""
    response.usage.prompt_tokens_details = protocol.TokensDetails(work[-n].cached)


def _write(
    request: CompletionRequest, situation: Situation, index: int, most: int, seed: int, number: int
) -> tuple[Choice, tuple[int, ...]]:
    text, ids, finish, reason = cut(write(situation, seed, number), protocol.stops(request), most)
    logprobs = None
    if request.logprobs is not None:
        others = dict.fromkeys(request.logprob_token_ids or (), _UNLIKELY)
        logprobs = protocol.completion_logprobs(
            request, ids, [{token: _fluency(token)} | others for token in ids], tokenizer.token_text
        )
    return Choice(index, text, logprobs, finish, reason), ids


def cut(text: str, stop: str | list[str] | tuple[str, ...], most: int) -> tuple[str, tuple[int, ...], str, str | None]:
    """(text, tokens, finish reason, stop string) of a continuation, cut at stop strings and at `most` tokens."""
    return _cut(text, (stop,) if isinstance(stop, str) else tuple(stop), most)


@lru_cache(maxsize=4096)
def _cut(text: str, stop: tuple[str, ...], most: int) -> tuple[str, tuple[int, ...], str, str | None]:
    hits = [(at, word) for word in stop if word and (at := text.find(word)) >= 0]
    at, word = min(hits, default=(len(text), None))
    ids = tuple(tokenizer.encode(text[: at + len(word or "")]))
    if len(ids) > most:
        ids = ids[:most]
        return tokenizer.decode(ids)[:at], ids, "length", None
    return text[:at], ids, "stop", word


@lru_cache(maxsize=65536)
def _fluency(token: int) -> float:
    """An invented logprob for a sampled token: near 0 for most tokens, low for some."""
    return -round(4.0 * ((token * 2654435761 % 997) / 997) ** 6, 6)


# ---------------------------------------------------------------------------------------------- yes/no


def _answer(request: CompletionRequest, situation: Situation, index: int, seed: int) -> tuple[Choice, tuple[int, ...]]:
    likely = distribution(answer(situation))
    if request.temperature is not None and request.temperature < 1e-5:
        token = max(likely, key=likely.__getitem__)
    else:
        weights = [math.exp(logprob) for logprob in likely.values()]
        token = random.Random(seed).choices(list(likely), weights)[0]
    logprobs = None
    if request.logprobs is not None:
        if request.logprob_token_ids:
            top = {number: likely.get(number, _UNLIKELY) for number in (token, *request.logprob_token_ids)}
        else:
            best = sorted(likely, key=likely.__getitem__, reverse=True)[: request.logprobs]
            top = {number: likely[number] for number in (token, *best)}
        logprobs = protocol.completion_logprobs(request, (token,), [top], tokenizer.token_text)
    finish = "length" if request.max_tokens in (None, 1) else "stop"
    return Choice(index, tokenizer.token_text(token), logprobs, finish, None), (token,)


def distribution(yes: float) -> dict[int, float]:
    """Logprobs of the next token if the answer is yes with probability `yes`."""
    likely = {}
    for side, mass in ((True, yes), (False, 1 - yes)):
        for word, share in zip(_SPELLINGS[side], _SHARES, strict=True):
            part = mass * (1 - _OTHER_MASS) * share
            likely[tokenizer.single(word)] = math.log(part) if part > 0 else _UNLIKELY
    for token, share in _OTHER.items():
        likely[token] = math.log(_OTHER_MASS * share)
    return likely
