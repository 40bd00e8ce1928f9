"""The framework Postern, and the sites that are built with it."""

from random import Random
from typing import Any

import pytest

from bootstraps import postern, site_tasks
from tests.support.live_task import live_task

SITE = """
from bootstraps.postern import Answer, Form, Number, Site, Text, go, missing

things = {first!r}
LIST = "<ul>{{each x in things}}<li>{{x.title}}: {{x.number}} {unit}</li>{{end}}</ul>"
ONE = "<h1>{{x.title}}</h1><p>{{x.number}} {unit}</p>"
FORM = '''<form>{{each e in errors}}<p>{{e}}</p>{{end}}
<input name="title" value="{{title}}"><input name="{unit}"></form>'''
site = Site(templates={{"list": LIST, "one": ONE, "form": FORM}})
form = Form(title=Text(most={longest}), {unit}=Number(least={least}, most={most}))

@site.on("GET", "/{many}/new")
def new(ask):
    return site.fill("form", title="", errors=[])

@site.on("GET", "/{many}/<int:number>")
def one(ask, number):
    return site.fill("one", x=things[number - 1]) if 0 < number <= len(things) else missing()

@site.on("POST", "/{many}")
def add(ask):
    values, errors = form.read(ask.form)
    if errors:
        told = [f"{{name}} {{why}}" for name, why in errors.items()]
        return Answer(site.fill("form", title=ask.form.get("title", ""), errors=told), 422)
    things.append({{"title": values["title"], "number": values["{unit}"]}})
    return go(f"/{many}/{{len(things)}}")

@site.on("GET", "/{many}")
def all_things(ask):
    least = ask.query.get("least", "0")
    if not least.isdecimal():
        return Answer("no number", 400)
    return site.fill("list", things=[x for x in things if x["number"] >= int(least)])
"""


def site(task: site_tasks.Task) -> str:
    theme = task.theme
    return SITE.format(
        first=[{"title": title, "number": number} for title, number in task.first], unit=theme.unit, many=theme.things,
        longest=task.longest, least=task.least, most=task.most,
    )  # fmt: skip


def test_a_site_is_judged_part_by_part() -> None:
    with live_task("web_framework.py", seed=3) as task:
        nothing = task.graded()
        assert set(nothing.values()) == {False}
        asked = task.act("return [task.theme.things, task.first, task.least, task.most, task.longest]")
        theme = next(theme for theme in site_tasks.THEMES if theme.things == asked[0])
        built = site(site_tasks.Task(theme, tuple(map(tuple, asked[1])), *asked[2:]))  # type: ignore[arg-type]
        path = f"/{theme.things}"
        assert task.act(f"open(FILE, 'w').write({built!r})\nreturn send('GET', {path!r})[0]") == 200
        task.act(f"send('POST', {path!r}, 'title=Cove&{theme.unit}={asked[3]}')")
        assert task.act(f"return send('GET', {path!r})[2]").count("Cove") == 1
        assert task.graded() == dict.fromkeys(nothing, True)
        assert task.views()["Requirements"].count("all checks pass") == 4
        task.act(f"open(FILE, 'w').write({built.replace('422', '200')!r})")
        assert task.graded() == {**dict.fromkeys(nothing, True), "is_form_right": False}
        assert "want 422, have 200" in task.views()["Requirements"]
        task.act(f"open(FILE, 'w').write({built.replace('{x.title}: ', '{raw x.title}: ')!r})")
        assert task.graded()["is_list_right"] is False
        task.act("open(FILE, 'w').write('import os\\nos._exit(0)\\n')")
        assert set(task.graded().values()) == {False}


@pytest.mark.parametrize("seed", range(6))
def test_every_drawn_site_can_be_built(seed: int) -> None:
    task = site_tasks.make(seed)
    names: dict[str, Any] = {"__name__": "site"}
    for part in site_tasks.PARTS:
        for check in task.cases(part, Random(seed)):
            exec(site(task), names)
            for method, address, posted in check["given"]:
                answer = names["site"].answer(postern.request(method, address, posted))
            found = [answer.status, answer.headers.get("Location", ""), answer.text]
            assert site_tasks.holds(check, found), (part, check, found)


def test_the_framework_does_what_its_manual_says() -> None:
    framework = postern.Site(templates={
        "list": "{each s in all}<li>{s.name}{when s.big} (big){otherwise}{each x in s.in}{x}{end}{end}</li>{end}"
        "{raw tail}",
    })  # fmt: skip
    framework.on("GET", "/stations/<int:number>")(lambda ask, number: f"{number + 1}")
    framework.on("GET", "/stations/<name>/x.y")(lambda ask, name: f"{name} {ask.query['q']}")
    assert framework.answer(postern.request("GET", "/stations/3")).text == "4"
    assert framework.answer(postern.request("GET", "/stations/a%20b/x.y?q=1&q=2")).text == "a b 1"
    assert framework.answer(postern.request("GET", "/stations/a/xzy")).status == 404
    assert framework.answer(postern.request("POST", "/stations/3")).status == 405
    stations = [{"name": "<A>", "big": True}, {"name": "B", "big": [], "in": ["1", "2"]}]
    assert framework.fill("list", all=stations, tail="<b>") == "<li>&lt;A&gt; (big)</li><li>B12</li><b>"
    with pytest.raises(KeyError):
        framework.fill("list", all=stations)
    fields = postern.Form(name=postern.Text(most=3), size=postern.Number(least=1, most=5))
    assert fields.read({"name": " abc ", "size": "5"}) == ({"name": "abc", "size": 5}, {})
    wrong = {"name": "is longer than 3 characters", "size": "is more than 5"}
    assert fields.read({"name": "abcd", "size": "9"}) == ({}, wrong)
    assert fields.read({"size": "x"}) == ({}, {"name": "is missing", "size": "is no number"})
