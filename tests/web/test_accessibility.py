"""axe-core finds nothing serious."""

import pytest
from playwright.sync_api import Page

from tests.web.places import PLACES, rejected
from tests.web.serving import serious
from weavegen.database import Database


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_no_serious_findings(page: Page, axe: str, corpus: Database, place: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(place.format(*rejected(corpus)))
    page.wait_for_load_state("load")
    assert serious(page, axe) == []
