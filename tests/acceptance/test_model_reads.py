"""What the model read and wrote, token by token, as the database records it; contexts too long for the model."""

from typing import Any

import pytest

from simulation import tokenizer
from tests.support import TICTACTOE
from tests.support.installation import Installation


def play(installation: Installation, *options: str) -> int:
    job = int(installation.json("enqueue", TICTACTOE, "--ticks", "3", "--seed", "5", *options)["job"])
    installation.wait(job)
    assert installation.sql("select distinct status from traces where job_id = :j", j=job) == [("ended",)]
    return job


def prompts(installation: Installation, job: int) -> list[Any]:
    """(kind, label, first block, block to write, tokens, cut, own ids, ids of the blocks, their texts, prefix)."""
    return installation.sql(
        """
        select s.kind, s.label, p.first_block, (s.request->'prompt'->'window'->>1)::int, p.tokens, p.cut,
          p.token_ids,
          array(select k.token_ids::text from block_tokens k where k.trace_id = p.trace_id and (index < 2
            or index between p.first_block and (s.request->'prompt'->'window'->>1)::int - 1) order by index),
          array(select b.rendered from blocks b where b.trace_id = p.trace_id and (index < 2
            or index between p.first_block and (s.request->'prompt'->'window'->>1)::int - 1) order by index),
          coalesce(s.request->'prompt'->>'prefix', '')
        from prompts p join steps s on s.id = p.step_id join traces t on t.id = p.trace_id
        where t.job_id = :job order by s.id
        """,
        job=job,
    )


def numbers(array: str) -> list[int]:
    return [int(number) for number in array.strip("{}").split(",")]


def test_every_prompt_can_be_reconstructed(installation: Installation) -> None:
    rows = prompts(installation, play(installation))
    assert {row[0] for row in rows} == {"sample", "score"}
    assert {row[9] for row in rows} > {"", "def action_"}
    for _, label, _, _, tokens, cut, own, blocks, texts, prefix in rows:
        assert cut is None
        ids = [number for block in blocks for number in numbers(block)]
        asked = len(own) - len(tokenizer.encode(prefix))
        assert tokenizer.decode(own[asked:]) == prefix
        assert tokens == len(ids) + asked
        assert tokenizer.decode(ids) == "<s><|im_start|>user\n" + "".join(texts)
        asking = tokenizer.decode(own[:asked])
        type = label.split()[4]
        assert "<|im_end|>\n<|im_start|>assistant\n" in asking
        assert f"#startblock type: {type}" in asking


@pytest.mark.parametrize("keep", ["all", "chosen", "none"])
def test_a_setting_keeps_the_tokens_of_candidates(installation: Installation, keep: str) -> None:
    job = play(installation, "--set", f"tokens={keep}")
    rows = installation.sql(
        """
        select c.text, c.tokens, c.token_ids, c.logprobs, b.id is not null,
          coalesce(s.request->'prompt'->>'prefix', '')
        from candidates c join traces t on t.id = c.trace_id join steps s on s.id = c.step_id
        left join blocks b on b.candidate_id = c.id
        where t.job_id = :job
        """,
        job=job,
    )
    assert len(rows) > 20
    for text, tokens, ids, logprobs, chosen, prefix in rows:
        if keep == "none" or (keep == "chosen" and not chosen):
            assert (ids, logprobs) == (None, None)
            continue
        assert len(ids) == len(logprobs) == tokens
        assert max(logprobs) <= 0
        assert text.startswith(prefix)
        assert tokenizer.decode(ids).startswith(text.removeprefix(prefix))
    kept = installation.sql(
        "select count(*) from block_tokens k join traces t on t.id = k.trace_id where t.job_id = :j", j=job
    )
    assert (kept == [(0,)]) is (keep == "none")
    asked = {row[6] is None for row in prompts(installation, job)}
    assert asked == {keep == "none"}


def test_a_context_too_long_for_the_model_is_cut_and_the_cut_is_recorded(installation: Installation) -> None:
    room = 4500
    rows = prompts(installation, play(installation, "--set", f"context={room}"))
    cuts = [row for row in rows if row[5] is not None]
    assert cuts
    for _, _, first, end, tokens, cut, *_ in rows:
        assert tokens + 768 <= room
        if cut is not None:
            assert cut["model_length"] == room
            assert cut["tokens"] > cut["room"] >= tokens
            assert cut["blocks_left_out"] > 0 or cut["blocks_shortened_to"] or cut["retrieved_left_out"]
            assert first <= end
    # The prompt keeps its beginning while blocks are added: its oldest block seldom changes.
    firsts = [row[2] for row in cuts]
    assert len(set(firsts)) <= len({row[3] for row in cuts}) / 2


def test_a_trace_stays_with_its_server(installation: Installation) -> None:
    job = play(installation)
    [(server,)] = installation.sql("select distinct server from traces where job_id = :j", j=job)
    [(asked,)] = installation.sql(
        "select distinct p.server from prompts p join traces t on t.id = p.trace_id where t.job_id = :j", j=job
    )
    assert server == asked
    [row] = installation.json("pool")
    assert (row["url"], row["state"], row["model"], row["traces"]) == (server, "up", "weavegen-sim", 0)
    assert row["prefix_hits"] > 0.5
    shown = installation.cli("pool", "--seconds", "0.2")
    assert "generated tok/s" in shown.stdout
    away = installation.cli("pool", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert (away.returncode, "away" in away.stdout) == (1, True)
