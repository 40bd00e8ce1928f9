"""Checks groups in the form of Atropos's ScoredData."""

import math
from typing import Any

from weavegen.exports import atropos

Json = dict[str, Any]


def check_group(group: Json) -> None:
    """Check a group against atroposlib's ScoredData and its documentation of masks and logprobs."""
    assert set(group) == set(atropos.FORMAT.schema.names)
    size = len(group["tokens"])
    assert size >= 2
    for name in ("masks", "scores", "inference_logprobs", "messages", "overrides"):
        assert len(group[name]) == size, name
    for tokens, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        assert len(tokens) == len(masks) == len(logprobs)
        written = next(place for place, mask in enumerate(masks) if mask != -100)
        assert written > 100
        assert masks[:written] == [-100] * written
        assert masks[written:] == tokens[written:]
        assert logprobs[:written] == [1.0] * written
        assert all(value <= 0 for value in logprobs[written:])
    for name in ("advantages", "ref_logprobs", "env_id"):
        assert group[name] is None
    assert all(math.isfinite(score) for score in group["scores"])
    for messages in group["messages"]:
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert all(message["content"] for message in messages)
    assert isinstance(group["generation_params"], dict)
    assert isinstance(group["group_overrides"], dict)
