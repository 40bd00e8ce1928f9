"""The task: have others count, and then look at what became of them. There is no end to it."""


def counted(self):
    if self.get_cache("returning"):  # the task's evaluations are run once more, for the caller
        return 2
    ticks = (self.get_cache("ticks") or 0) + 1
    self.update_cache("ticks", ticks)
    if ticks == 2:
        self.update_cache("returning", True)
        self.return_to_caller({"done": True})
    return ticks


def view_board(self):
    return agent.view_board()


def action_begin(self):
    main = agent.subagent("main", None, "Have others count", {"done": {"type": "boolean"}}, args.budget)
    main.add_observation_view("Board", view_board)
    for name in ("first", "second"):
        counter = agent.subagent(name, "main", "Count two ticks", {"done": "boolean", "counted": "integer"}, args.budget)
        counter.task.add_evaluation("How many ticks is it?", counted)
        assert agent.run(name)["counted"] == 2, "Were two ticks counted?"
    return "both have counted"


self.add_action("Have two subagents count", action_begin)
