"""From a request to a response: what the simulation answers. No I/O and no time here."""

import math
import random
import secrets
import time
from dataclasses import dataclass
from functools import lru_cache

from weavegen.sim import MODEL, batch, protocol, tokenizer
from weavegen.sim.cache import Prompt
from weavegen.sim.load import Engine
from weavegen.sim.parameters import Load
from weavegen.sim.policies import answer, write
from weavegen.sim.policies.situation import Situation, asked, read
from weavegen.sim.protocol import BadRequest, Choice, CompletionRequest, Logprobs

MAX_MODEL_LEN = Load.max_model_len
"""Where no other is given."""
MAX_STOPS = 4
MAX_LOGPROBS = 20
MAX_IDS = 128
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
    prompt = request.prompt
    if prompt is None or prompt == "" or prompt == []:
        raise BadRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    items = [prompt] if isinstance(prompt, str) else prompt
    if len({type(item) for item in items}) > 1:
        raise BadRequest("prompt must be a text, token ids, or several of one of these.", param="prompt")
    ids = [item for item in items if isinstance(item, int)]
    try:
        return [
            _prompt(item, request.add_special_tokens)
            for item in ([ids] if ids else items)
            if not isinstance(item, int)
        ]
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


def _room(tokens: int, request: CompletionRequest, load: Load) -> int:
    """Tokens that a prompt leaves for its continuation, as far as the request wants them."""
    room = load.max_model_len - tokens
    if room < 0:
        message = (
            f"This model's maximum context length is {load.max_model_len} tokens. However, your prompt contains "
            f"{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            f"length of the input prompt. (parameter=input_tokens, value={tokens})"
        )
        raise BadRequest(message, param="input_tokens")
    if room == 0:
        raise BadRequest(
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", param="max_tokens"
        )
    return min(room, 16 if request.max_tokens is None else request.max_tokens)


def check(request: CompletionRequest, load: Load | None = None) -> None:
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
    if request.priority and load is not None and load.scheduling_policy != "priority":
        message = f"Got priority {request.priority} but Priority scheduling is not enabled."
        raise BadRequest(message, param="priority")
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


def without_extras(request: CompletionRequest) -> None:
    """The request as a server takes it that knows OpenAI's fields alone: what it refuses, and what it ignores."""
    if isinstance(request.prompt, list) and any(not isinstance(item, str) for item in request.prompt):
        raise BadRequest("prompt: token ids are not supported, send text", param="prompt")
    if request.logprob_token_ids is not None:
        message = "Unrecognized request argument supplied: logprob_token_ids"
        raise BadRequest(message, param="logprob_token_ids")
    request.return_token_ids = request.return_tokens_as_token_ids = None
    request.add_special_tokens, request.include_stop_str_in_output, request.priority = True, False, 0


def complete(
    request: CompletionRequest, engine: Engine
) -> tuple[protocol.CompletionResponse, list[batch.Sequence]]:
    """The response, and the sequences that the engine has to work through before it is sent."""
    check(request, engine.load)
    seed = secrets.randbits(62) if request.seed is None else request.seed
    choices: list[Choice] = []
    work: list[batch.Sequence] = []
    prompts = _prompts(request)
    rooms = [_room(prompt.tokens.tokens, request, engine.load) for prompt in prompts]
    generated = 0
    for prompt, most in zip(prompts, rooms, strict=True):
        situation = read(prompt.text)
        if situation.question is None and most == 1 and request.logprobs is not None:
            situation = asked(situation)  # only the evaluator asks for the odds of a single token
        for number in range(request.n):
            if situation.question is not None:
                choice, ids = _answer(request, situation, len(choices), seed + number)
            else:
                choice, ids = _write(request, situation, len(choices), most, seed, number)
            if request.return_token_ids:
                choice.token_ids = list(ids)
                choice.prompt_token_ids = tokenizer.unpack(prompt.tokens.data)
            choices.append(choice)
            generated += len(ids)
            output = tokenizer.pack(ids)
            work.append(batch.Sequence(prompt.tokens, output, choice.finish_reason, request.priority))
    prompt_tokens = sum(prompt.tokens.tokens for prompt in prompts)
    usage = protocol.Usage(
        prompt_tokens=prompt_tokens, total_tokens=prompt_tokens + generated, completion_tokens=generated
    )
    response = protocol.CompletionResponse(
        id=f"cmpl-{secrets.token_hex(8)}", created=int(time.time()), choices=choices, usage=usage
    )
    return response, work


def tell_cached(response: protocol.CompletionResponse, work: list[batch.Sequence], n: int) -> None:
    """Put into a response how much of the prompt was cached: like vLLM, of the last prompt alone."""
    response.usage.prompt_tokens_details = protocol.TokensDetails(work[-n].cached)


def _write(
    request: CompletionRequest, situation: Situation, index: int, most: int, seed: int, number: int
) -> tuple[Choice, tuple[int, ...]]:
    text, ids, finish, reason = cut(write(situation, seed, number), request.stop or (), most)
    told = None
    if request.logprobs is not None:
        others = dict.fromkeys(request.logprob_token_ids or (), _UNLIKELY)
        told = _told(request, ids, [{token: _fluency(token)} | others for token in ids])
    if request.include_stop_str_in_output:
        text += reason or ""
    return Choice(index, text, told, finish, reason), ids


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


def _answer(
    request: CompletionRequest, situation: Situation, index: int, seed: int
) -> tuple[Choice, tuple[int, ...]]:
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
    finish = "length" if request.max_tokens in (None, 1) else "stop"
    return Choice(index, tokenizer.token_text(token), told, finish, None), (token,)


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
