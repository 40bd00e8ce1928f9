"""The texts of the bootstraps: pages contain the whole text, and questions have their answers in the text."""

import re

import pytest

from bootstraps import texts

ANSWERS = {
    "ferry": [
        "eleven", "green", "Button", "blisters", "nine", "heron", "eighty-four", "cabbages", "Corrin", "rang",
    ],
    "rock_pool": [
        "slate", "thirty-one", "yellow", "goethite", "forehead", "six", "nine", "blue", "right", "seven",
    ],
}  # fmt: skip


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_text_has_questions() -> None:
    assert texts.names() == sorted(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_pages_contain_the_whole_text(name: str) -> None:
    pages = texts.pages(name)
    whole = (texts.FOLDER / f"{name}.txt").read_text()
    assert one_line(whole) == one_line(texts.title(name) + " " + " ".join(pages))
    assert all(texts.PAGE <= len(page.split()) <= 2 * texts.PAGE for page in pages[:-1])
    assert 6 <= len(pages) <= 8, "a report may be asked to quote six pages"


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_in_the_text_and_are_accepted(name: str) -> None:
    words = set(re.findall(r"[\w-]+", (texts.FOLDER / f"{name}.txt").read_text().lower()))
    assert len(texts.questions(name)) == len(ANSWERS[name])
    for question, answer in zip(texts.questions(name), ANSWERS[name], strict=True):
        assert answer.lower() in words
        assert texts.is_right(name, question, f" {answer.upper()}. ")
        assert not texts.is_right(name, question, "the " + answer)


def test_an_answer_is_accepted_only_for_its_own_question() -> None:
    first, second = texts.questions("ferry")[:2]
    assert not texts.is_right("ferry", first, "green")
    assert texts.is_right("ferry", second, "green")
    assert not texts.is_right("rock_pool", second, "green")
