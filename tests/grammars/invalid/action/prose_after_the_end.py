def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", action_go)

This action moves. I expect it to work.
