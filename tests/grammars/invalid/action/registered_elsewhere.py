def action_go(self):
    assert move(1), "Did we move?"
subagent.add_action("Go", action_go)
