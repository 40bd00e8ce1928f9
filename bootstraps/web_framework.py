"""The task: build a small site with the web framework Postern, which I know only from its manual.

The site is one file, /app/site.py, with a name `site`. What each of its four parts must do is in a view: a list, a
page for one thing, a form that adds one, and a filter. All things are drawn from the trace's seed. A server on
http://127.0.0.1:8000 answers with the file as it is now, loaded anew for each check. The parameter {"chapter":
"routes"} says which chapter of the manual is open at first: routes, requests, answers, templates or forms.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import urllib.error
import urllib.request

from tools.editor import WeaveEditor

from bootstraps import postern, postern_server, site_tasks
from bootstraps.params import read_params

FILE = "/app/site.py"
HOME = "http://127.0.0.1:8000"

[first_chapter] = read_params(args.params, chapter=("routes", list(postern.MANUAL)))
check_seed = random.getrandbits(64)
task = site_tasks.make(random.getrandbits(64))


def site_text():
    with open(FILE, errors="replace") as file:
        return file.read()


def load():
    """Run site.py anew, so that the site is as at first. Gives its `site`."""
    names = {"__name__": "site"}
    exec(compile(site_text(), FILE, "exec"), names)
    return names["site"]


running = {"site": None, "text": None}


def send(method, address, form=None):
    """Send a request to the server. Gives (status, address to go to or "", text). A status of 500 has the traceback."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    data = form.encode() if isinstance(form, str) else None
    asked = urllib.request.Request(HOME + address, data, method=method)
    try:
        answer = urllib.request.build_opener(Stay).open(asked, timeout=2)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers.get("Location", ""), answer.read().decode()


def failing(part):
    """The checks of a part that fail: (requests, what came of the last one), sent to the server one by one."""
    found = []
    for check in task.cases(part, random.Random(0)):
        running["site"] = None
        for method, address, posted in check["given"]:
            answer = send(method, address, posted if method == "POST" else None)
        if not site_tasks.holds(check, answer):
            found.append((check, answer))
    return found


def open_chapter(self, name):
    """Turn the manual to a chapter: routes, requests, answers, templates, forms."""
    if name not in postern.MANUAL:
        raise ValueError(f"there is no chapter {name!r}: the manual has {', '.join(postern.MANUAL)}")
    self.update_cache("chapter", name)


def view_manual(self):
    """The chapter of the manual that is open."""
    name = self.get_cache("chapter")
    others = ", ".join(other for other in postern.MANUAL if other != name)
    return f"Chapter {name} (others: {others})\n\n{postern.MANUAL[name]}"


def view_requirements(self):
    """What every part must do, and its first check that fails."""
    lines = []
    for part, what in task.requirements().items():
        wrong = failing(part)
        lines.append(f"{part} ({'all checks pass' if not wrong else f'{len(wrong)} checks fail'}): {what}")
        for check, (status, location, text) in wrong[:1]:
            asked = " then ".join(f"{method} {address} {posted}".strip() for method, address, posted in check["given"])
            lines.append(f"  {asked}: want {check['status']}, have {status} {location} {text.strip()[-300:]}".rstrip())
    return "\n".join(lines)


"""
I'm about to build a site. What do I know? The framework is not one that I have seen, so I take nothing from memory:
each chapter of the manual is short, and `open_chapter(self, "forms")` shows it from the next tick on. I also know what
the site must do, and the requirements view sends requests and shows the first one of each part that fails.

What is a good order? One part a tick: first the list, because the other parts need its things; then the page of one
thing, then the form, then the filter. I read the chapter before I write with it. The file is edited with
`self.tools["editor-/app/site.py"]`, and `send("GET", "/")` shows at once what a change has done. If a page raises, the
status is 500 and the text has the traceback: I read its last line first.

What is easily overlooked? The order of the routes; what has to be escaped, and what is escaped by the template already;
that the form's answer keeps what was typed; that a wrong field adds nothing.

How does it end? When every part passes its checks, and the task's evaluations, which run others of the same kind, say
so too, my action calls `self.return_to_caller({"parts": 4})`, or with fewer if I can't get further.

So now I set up the subagent `main`, start the server, and write the frame of site.py with a first page.
"""

FRAME = f"""\
from bootstraps.postern import Answer, Form, Number, Site, Text, go, missing

{task.theme.things} = {[{"title": title, "number": number} for title, number in task.first]!r}
site = Site(templates={{
    "home": "<h1>{{title}}</h1><p><a href='/{task.theme.things}'>All {task.theme.things}</a></p>",
}})


@site.on("GET", "/")
def home(ask):
    return site.fill("home", title="Welcome")
"""


def action_set_up_and_write_the_frame(self):
    what = f"With the framework Postern, build a site about {task.theme.things} in {FILE}"
    main = agent.subagent("main", None, what, {"parts": "integer"}, args.budget)
    main.task.add_evaluation("Does the list answer as it must?", is_list_right, protected=True, files=["site.py"])
    main.task.add_evaluation(
        "Does the page of one answer as it must?", is_item_right, protected=True, files=["site.py"]
    )
    main.task.add_evaluation("Does the form answer as it must?", is_form_right, protected=True, files=["site.py"])
    main.task.add_evaluation("Does the filter answer as it must?", is_filter_right, protected=True, files=["site.py"])
    open_chapter(main, first_chapter)
    WeaveEditor(main, FILE).append(FRAME)

    def answer(ask):
        if running["site"] is None or running["text"] != site_text():
            running.update(site=load(), text=site_text())
        return running["site"].answer(ask)

    postern_server.serve(answer)
    main.add_observation_view("Manual", view_manual)
    main.add_observation_view("Requirements", view_requirements)
    status, _, text = send("GET", "/")
    assert status == 200, "Does the first page answer with status 200?"
    assert "<h1>Welcome</h1>" in text, "Does the first page show its title?"
    return f"first page: {status}"


def passes(part):
    """Whether the saved file passes hidden checks of a part, in a process that can only compute."""
    return all(site_tasks.grade(task, part, site_text(), random.Random(check_seed)))


def is_list_right(self):
    return passes("list")


def is_item_right(self):
    return passes("item")


def is_form_right(self):
    return passes("form")


def is_filter_right(self):
    return passes("filter")


self.add_action("Set up the main agent and write the frame of the site", action_set_up_and_write_the_frame)

"""
If this has worked, the editor shows site.py with one route, the manual is open, and the requirements view says of every
part that checks fail, most of them with status 404, because there is no route yet.
"""


def eval_first_page_answers(self):
    return send("GET", "/")[0] == 200 and send("GET", f"/{task.theme.things}")[0] == 404


self.add_evaluation("Does the first page answer, and no other yet?", eval_first_page_answers)
