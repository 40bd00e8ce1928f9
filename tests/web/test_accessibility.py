"""axe-core finds nothing serious."""

import pytest
from playwright.sync_api import Page

from tests.web.places import PLACES, rejected
from weavegen.database import Database


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_no_serious_findings(page: Page, axe: str, corpus: Database, place: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(place.format(*rejected(corpus)))
    page.wait_for_load_state("load")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]
    assert serious == []
