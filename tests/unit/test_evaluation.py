"""Shares and means with their confidence intervals."""

import math

import pytest

from weavegen.evaluator.evaluation import ratio, share
from weavegen.store.jobs import merged


def test_settings_above_others() -> None:
    given = {"ticks": 4, "types": {"action": {"rounds": [8], "trials": 2}, "debug": {"rounds": [2]}}}
    above = {"search": "execute", "types": {"action": {"trials": 8}}}
    assert merged(given, above) == {
        "ticks": 4,
        "search": "execute",
        "types": {"action": {"rounds": [8], "trials": 8}, "debug": {"rounds": [2]}},
    }
    corrected = {"corrections": {"Is it?": [1.0, 0.0]}}
    assert merged(corrected, {"corrections": {}}) == {"corrections": {}}
    assert given["types"] == {"action": {"rounds": [8], "trials": 2}, "debug": {"rounds": [2]}}


def test_wilsons_interval() -> None:
    # Newcombe, doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E, table I, method 3.
    for part, of, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        result = share([True] * part + [False] * (of - part))
        assert (result.value, result.of) == (part / of, of)
        assert (result.low, result.high) == pytest.approx((low, high), abs=1e-4)
    assert math.isnan(share([]).value)


def test_a_ratio_is_resampled_by_trace() -> None:
    alike = ratio([5] * 40, [10] * 40)
    assert (alike.value, alike.low, alike.high) == (0.5, 0.5, 0.5)
    apart = ratio([10] * 20 + [0] * 20, [10] * 40)
    assert apart.value == 0.5
    assert 0.3 < apart.low < 0.4 < 0.6 < apart.high < 0.7  # 40 traces, not 400 blocks
    assert math.isnan(ratio([0], [0]).value)
