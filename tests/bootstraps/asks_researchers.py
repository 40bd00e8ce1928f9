"""The task: have two things looked up at once, and keep the summaries."""


def action_ask(self):
    main = agent.subagent("main", None, "Look two things up", {"summaries": "list"}, args.budget)
    main.task.add_evaluation("Were both found?", are_both_found)
    summaries = agent.research(["What are tokens kept for?", "What is a release?"], "It is about weavegen's documents.")
    assert len(summaries) == 2, "Did both come back?"
    main.update_cache("summaries", summaries)
    main.return_to_caller({"summaries": summaries})
    return len(summaries)


def are_both_found(self):
    return all(isinstance(one, str) and one for one in self.get_cache("summaries") or [""])


self.add_action("Ask two researchers", action_ask)
