def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", callback=action_go)
