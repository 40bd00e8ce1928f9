"""Prompts as the steps compose them, with the real prefix cache."""

from tests.support.vllm_server import Server
from weavegen.engine.prompt_assembly import Body, begun, question_prompt
from weavegen.kernel.context import STOP
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Tokens, joined

BLOCK = 128
"""Tokens in a cache block on the CPU. Only whole blocks are reused."""


def test_questions_continue_from_the_sampled_tokens(client: ModelClient, server: Server) -> None:
    pieces = [client.piece(f"# line {number}: a lamp, a door, a page\n") for number in range(120)]
    context = joined([client.piece("<s> [INST] ", bos=True), *pieces])
    assert isinstance(context, Tokens)
    prefix = "def action_"
    sampled = client.sample(
        begun(client, context, prefix, prefix),
        n=2,
        max_tokens=400,
        temperature=1.0,
        top_k=50,
        repetition_penalty=1.0,
        seed=5,
        stop=STOP,
    )
    bodies = [prefix + one.text for one in sampled.continuations]
    ids = [one.token_ids for one in sampled.continuations]
    ended = [one.finish_reason == "stop" for one in sampled.continuations]
    asked = [
        question_prompt(client, context, prefix, Body(body, tokens, stopped), "Is it so?", STOP)
        for body, tokens, stopped in zip(bodies, ids, ended, strict=True)
    ]
    before = server.metrics()
    by_tokens = client.yes_no(asked)
    after = server.metrics()
    computed = (after.queries - before.queries) - (after.hits - before.hits)
    questions = sum(prompt.count for prompt in asked if isinstance(prompt, Tokens)) - sum(
        context.count + len(tokens or ()) for tokens in ids
    )
    assert computed <= questions + len(asked) * (BLOCK + 16)  # the candidates themselves were in the cache
    # Tokenised separately, the texts have other tokens, because a random model samples unusual ones.
    again = [question_prompt(client, context, prefix, Body(body), "Is it so?", STOP) for body in bodies]
    assert again != asked
    assert len(client.yes_no(again)) == len(by_tokens) == 2
