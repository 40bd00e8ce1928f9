"""The task: watch a ledger that must never lose a line and never hold one twice. There is no end to it."""

looks = []


def view_ledger(self):
    looks.append(len(looks))
    with open("ledger.txt", "a") as ledger:
        ledger.write(f"{len(looks)}\n")
    return f"The ledger was looked at {len(looks)} times."


def the_ledger_is_whole(self):
    with open("ledger.txt") as ledger:
        return ledger.read().split() == [str(number) for number in range(1, len(looks) + 1)]


def every_tick_looked_once(self):
    before = self.get_cache("looks")
    self.update_cache("looks", len(looks))
    return len(looks) == before + 1


def action_begin(self):
    main = agent.subagent("main", None, "Watch the ledger", {"lines": {"type": "integer"}}, args.budget)
    open("ledger.txt", "w").close()
    main.update_cache("looks", -1)
    main.add_observation_view("Ledger", view_ledger)
    main.task.add_evaluation("Is the ledger whole?", the_ledger_is_whole)
    main.task.add_evaluation("Was it looked at once since the last tick?", every_tick_looked_once)
    return "begun"


self.add_action("Begin to watch the ledger", action_begin)
