"""From a request to a response: what the simulation answers. No I/O and no time here."""

import math
import random
import secrets
import time
from functools import lru_cache

from weavegen.sim import MODEL, protocol, tokenizer
from weavegen.sim.load import Engine
from weavegen.sim.policies import answer, write
from weavegen.sim.policies.situation import Situation, asked, read
from weavegen.sim.protocol import BadRequest, Choice, CompletionRequest, Logprobs

MAX_MODEL_LEN = 131_072
MAX_STOPS = 4
MAX_LOGPROBS = 20
MAX_IDS = 128
_UNLIKELY = -25.0
"""Logprob of every token that the simulated distribution does not name."""
_SPELLINGS = {True: ("Yes", " Yes", "yes", "YES"), False: ("No", " No", "no", "NO")}
_SHARES = (0.9, 0.06, 0.03, 0.01)
_OTHER = {tokenizer.single(word): share for word, share in (("It", 0.5), ("The", 0.3), ("I", 0.2))}
_OTHER_MASS = 0.01


def texts(request: CompletionRequest) -> list[str]:
    """The prompts as text."""
    prompt = request.prompt
    if prompt is None or prompt == "" or prompt == []:
        raise BadRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(item, int) for item in prompt):
        prompt = [[item for item in prompt if isinstance(item, int)]]
    try:
        return [
            item if isinstance(item, str) else tokenizer.decode([item] if isinstance(item, int) else item)
            for item in prompt
        ]
    except IndexError as error:
        raise BadRequest(f"Token id {error} is out of vocabulary", param="prompt") from None


def check(request: CompletionRequest) -> None:
    """Refuse what vLLM refuses, in its words."""
    if request.model not in (None, MODEL):
        message = f"The model `{request.model}` does not exist. Valid aliases: {MODEL}."
        raise BadRequest(message, param="model", status=404)
    if request.stream or request.echo:
        raise BadRequest("The simulation does neither `stream` nor `echo`.", param="stream")
    if request.n < 1:
        raise BadRequest(f"n must be at least 1, got {request.n}.", param="n")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise BadRequest(f"max_tokens must be at least 1, got {request.max_tokens}.", param="max_tokens")
    ids = request.logprob_token_ids
    if ids and request.logprobs is None:
        message = "when using `logprob_token_ids`, `logprobs` must be set."
        raise BadRequest(message, param="logprob_token_ids")
    if ids and len(ids) > MAX_IDS:
        message = f"Requested logprob_token_ids of length {len(ids)}, which is greater than max allowed: {MAX_IDS}"
        raise BadRequest(message, param="logprob_token_ids")
    if ids and (strange := [number for number in ids if not 0 <= number < tokenizer.SIZE]):
        message = f"token_id(s) {strange} in logprob_token_ids contain out-of-vocab token ids."
        raise BadRequest(message, param="logprob_token_ids")
    if isinstance(request.stop, list) and len(request.stop) > MAX_STOPS:
        message = f"List should have at most {MAX_STOPS} items after validation, not {len(request.stop)}"
        raise BadRequest(message, param="stop")
    if not ids and (request.logprobs or 0) > MAX_LOGPROBS:
        message = f"Requested sample logprobs of {request.logprobs}, which is greater than max allowed: "
        raise BadRequest(message + str(MAX_LOGPROBS), param="logprobs")


def complete(
    request: CompletionRequest, engine: Engine
) -> tuple[protocol.CompletionResponse, list[tuple[int, int]]]:
    """The response, and (prompt tokens to compute, tokens generated) of each sequence."""
    check(request)
    seed = secrets.randbits(62) if request.seed is None else request.seed
    most = 16 if request.max_tokens is None else request.max_tokens
    choices: list[Choice] = []
    work: list[tuple[int, int]] = []
    prompt_tokens = 0
    for prompt in texts(request):
        total, cached = engine.prompt(prompt)
        if total + most > MAX_MODEL_LEN:
            message = (
                f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, you requested {most} "
                f"output tokens and your prompt contains {total} input tokens."
            )
            raise BadRequest(message, param="input_tokens")
        prompt_tokens += total
        situation = read(prompt)
        if situation.question is None and most == 1 and request.logprobs is not None:
            situation = asked(situation)  # only the evaluator asks for the odds of a single token
        for number in range(request.n):
            if situation.question is not None:
                choice, generated = _answer(request, situation, len(choices), seed + number)
            else:
                choice, generated = _write(request, situation, len(choices), most, seed, number)
            if request.return_token_ids:
                choice.prompt_token_ids = tokenizer.encode(prompt)
            choices.append(choice)
            work.append((total - cached if number == 0 else 0, generated))
    generated = sum(count for _, count in work)
    _count(engine, choices, generated)
    usage = protocol.Usage(
        prompt_tokens=prompt_tokens, total_tokens=prompt_tokens + generated, completion_tokens=generated
    )
    return (
        protocol.CompletionResponse(
            id=f"cmpl-{secrets.token_hex(8)}", created=int(time.time()), choices=choices, usage=usage
        ),
        work,
    )


def _count(engine: Engine, choices: list[Choice], generated: int) -> None:
    engine.metrics.generation_tokens += generated
    stopped = sum(choice.finish_reason == "stop" for choice in choices)
    engine.metrics.stopped += stopped
    engine.metrics.length += len(choices) - stopped


def _write(
    request: CompletionRequest, situation: Situation, index: int, most: int, seed: int, number: int
) -> tuple[Choice, int]:
    text, ids, finish, reason = cut(write(situation, seed, number), request.stop or (), most)
    told = None
    if request.logprobs is not None:
        others = dict.fromkeys(request.logprob_token_ids or (), _UNLIKELY)
        told = _told(request, ids, [{token: _fluency(token)} | others for token in ids])
    kept = list(ids) if request.return_token_ids else None
    return Choice(index, text, told, finish, reason, kept), len(ids)


def cut(
    text: str, stop: str | list[str] | tuple[str, ...], most: int
) -> tuple[str, tuple[int, ...], str, str | None]:
    """(text, tokens, finish reason, stop string) of a continuation as a server would end it."""
    return _cut(text, (stop,) if isinstance(stop, str) else tuple(stop), most)


@lru_cache(maxsize=4096)
def _cut(text: str, stop: tuple[str, ...], most: int) -> tuple[str, tuple[int, ...], str, str | None]:
    found = [(at, word) for word in stop if word and (at := text.find(word)) >= 0]
    at, word = min(found, default=(len(text), None))
    ids = tuple(tokenizer.encode(text[: at + len(word or "")]))
    if len(ids) > most:
        ids = ids[:most]
        return tokenizer.decode(ids)[:at], ids, "length", None
    return text[:at], ids, "stop", word


@lru_cache(maxsize=65536)
def _fluency(token: int) -> float:
    """A made-up logprob for a sampled token: mostly sure, now and then not."""
    return -round(4.0 * ((token * 2654435761 % 997) / 997) ** 6, 6)


# ---------------------------------------------------------------------------------------------- yes/no


def _answer(request: CompletionRequest, situation: Situation, index: int, seed: int) -> tuple[Choice, int]:
    likely = distribution(answer(situation))
    if request.temperature is not None and request.temperature < 1e-5:
        token = max(likely, key=likely.__getitem__)
    else:
        weights = [math.exp(logprob) for logprob in likely.values()]
        token = random.Random(seed).choices(list(likely), weights)[0]
    told = None
    if request.logprobs is not None:
        if request.logprob_token_ids:
            top = {number: likely.get(number, _UNLIKELY) for number in (token, *request.logprob_token_ids)}
        else:
            best = sorted(likely, key=likely.__getitem__, reverse=True)[: request.logprobs]
            top = {number: likely[number] for number in (token, *best)}
        told = _told(request, (token,), [top])
    kept = [token] if request.return_token_ids else None
    finish = "length" if request.max_tokens in (None, 1) else "stop"
    return Choice(index, tokenizer.token_text(token), told, finish, None, kept), 1


def distribution(yes: float) -> dict[int, float]:
    """Logprobs of the next token where the answer is yes with probability `yes`."""
    likely = {}
    for side, mass in ((True, yes), (False, 1 - yes)):
        for word, share in zip(_SPELLINGS[side], _SHARES, strict=True):
            part = mass * (1 - _OTHER_MASS) * share
            likely[tokenizer.single(word)] = math.log(part) if part > 0 else _UNLIKELY
    for token, share in _OTHER.items():
        likely[token] = math.log(_OTHER_MASS * share)
    return likely


def _told(request: CompletionRequest, ids: tuple[int, ...], tops: list[dict[int, float]]) -> Logprobs:
    """The logprobs of a choice; without a reason to do otherwise the keys are texts, as with vLLM."""
    name = _placeholder if request.return_tokens_as_token_ids else tokenizer.token_text
    tokens = [name(token) for token in ids]
    offsets, at = [], 0
    for token in tokens:
        offsets.append(at)
        at += len(token)
    return Logprobs(
        text_offset=offsets,
        token_logprobs=[top[token] for token, top in zip(ids, tops, strict=True)],
        tokens=tokens,
        top_logprobs=[{name(token): logprob for token, logprob in top.items()} for top in tops],
    )


@lru_cache(maxsize=tokenizer.SIZE)
def _placeholder(token: int) -> str:
    return f"token_id:{token}"
