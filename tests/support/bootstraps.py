"""Bootstraps whose action calls subagents or agents of other traces."""

CALLING = """
def be_brief(self):
    if not self.completed and not self.get_cache("returning"):
        self.update_cache("returning", True)
        self.return_to_caller({"done": True})
    return True

def action_start(self):
    agent.subagent("main", None, "Have others work", {}, 60)
    brief = agent.subagent("brief", "main", "Be done at once", {"done": "boolean", "be_brief": "boolean"}, 60)
    brief.task.add_evaluation("Is it brief?", be_brief)
    agent.subagent("long", "main", "Never be done", {}, 60)
    given = agent.run("brief")
    assert given["done"], "Was it done?"
    return agent.run("long") if args.params["long"] else given

self.add_action("Start", action_start)
"""

ASKING = """
def action_start(self):
    agent.subagent("main", None, "Have others look things up", {}, 60)
    found = agent.research(["Which moves win?", "Which moves lose?"], "I play X.")
    assert len(found) == 2, "Was both found out?"
    return found

self.add_action("Start", action_start)
"""
