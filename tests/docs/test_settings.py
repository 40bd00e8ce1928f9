"""The reference of settings is that of the code, and a misspelt setting is answered with the nearest one."""

from typing import Any

import pytest

from scripts import settings_reference
from weavegen.errors import UsageError
from weavegen.kernel import settings


def test_the_reference_is_up_to_date() -> None:
    hint = "run: make settings"
    assert settings_reference.PAGE.read_text() == settings_reference.page(), hint


def test_every_setting_has_a_meaning() -> None:
    found = [*settings_reference.read(settings.BlockSettings), *settings_reference.read(settings.Settings)]
    assert {one.name for one in found} == set(settings.Settings.__struct_fields__)
    assert all(len(one.meaning) > 5 for one in found)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("temprature", "did you mean temperature?"), ("tick", "did you mean ticks?"), ("zzzz", "docs/settings.md")],
)
def test_a_misspelt_setting_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=name) as refused:
        settings.settings({name: 1})
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("values", "type", "name", "value"),
    [
        ({}, "assistant", "temperature", 0.7),
        ({"temperature": 1.0}, "assistant", "temperature", 1.0),
        ({"max_tokens": 768}, "assistant", "max_tokens", 768),
        ({"top_k": 50}, "assistant", "top_k", 50),
        ({"top_k": 50}, "assistant", "temperature", 0.7),
        ({"temperature": 1.0, "types": {"assistant": {"temperature": 0.5}}}, "assistant", "temperature", 0.5),
        ({"search": "execute"}, "action", "rounds", (1, 4, 16)),
        ({"search": "execute", "rounds": [4, 16, 64]}, "action", "rounds", (4, 16, 64)),
        ({"tree_nodes": 72}, "orientation", "tree_nodes", 72),
        ({"tree_nodes": 80}, "orientation", "tree_nodes", 80),
    ],
)
def test_a_value_that_is_set_for_all_types_takes_the_place_of_usual_ones(
    values: dict[str, Any], type: str, name: str, value: object
) -> None:
    assert getattr(settings.settings(values).of(type), name) == value
