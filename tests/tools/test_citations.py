"""Citations: right if the source says what the claim says, and only then."""

from bootstraps import citation_archive
from tests.support.live_task import LiveTask, live_task


def support_of(task: LiveTask) -> list[list[int]]:
    found = task.act("return [sorted(numbers) for numbers in article.support]")
    assert isinstance(found, list)
    return found


def test_citations_must_be_where_a_source_supports_the_claim() -> None:
    with live_task("citations.py", claims=12, sources=6) as task:
        support = support_of(task)
        assert task.graded() == {"is_all_cited": False, "is_nothing_else_cited": True, "is_text_kept": True}
        for claim, numbers in enumerate(support, 1):
            task.act(f"cite(self, {claim}, {numbers[0]})" if numbers else f"leave(self, {claim})")
        assert "to be looked up" not in task.views()["Progress"]
        assert task.graded() == {"is_all_cited": True, "is_nothing_else_cited": True, "is_text_kept": True}
        bare = next(number for number, numbers in enumerate(support, 1) if not numbers)
        task.act(f"cite(self, {bare}, 1)")
        assert task.graded() == {"is_all_cited": True, "is_nothing_else_cited": False, "is_text_kept": True}
        cited = next(number for number, numbers in enumerate(support, 1) if numbers)
        wrong = next(number for number in range(1, 7) if number not in support[cited - 1])
        task.act(f"leave(self, {bare})\ncite(self, {cited}, {wrong})")
        assert task.graded() == {"is_all_cited": False, "is_nothing_else_cited": False, "is_text_kept": True}
        task.act("self.tools[f'editor-{ARTICLE}'].edit(3, 3, 'Something else.')")
        assert task.graded()["is_text_kept"] is False
        task.act("open(ARTICLE, 'wb').write(b'\\xff' * 10**6)")
        assert task.graded() == {"is_all_cited": False, "is_nothing_else_cited": True, "is_text_kept": False}


def test_an_archive_says_what_its_article_is_supported_by() -> None:
    for seed in range(30):
        article = citation_archive.write(seed, claims=16, sources=6)
        assert article == citation_archive.write(seed, claims=16, sources=6)
        assert sum(bool(numbers) for numbers in article.support) == 8
        for claim, numbers in zip(article.claims, article.support, strict=True):
            thing = " ".join(claim.split(" ")[1:3])
            assert all(thing in article.sources[number - 1].text for number in numbers)
        archive = citation_archive.Archive(article.sources)
        assert archive.page("/source/1")[0] == archive.page("/")[0] == 200
        assert archive.page("/source/7")[0] == archive.page("/source/x")[0] == 404
        thing = "%20".join(article.claims[0].split(" ")[1:3])
        assert "/source/" in archive.page(f"/search?q={thing}")[1]
