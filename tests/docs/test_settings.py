"""The reference of settings is that of the code, and a misspelt setting is answered with the nearest one."""

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
