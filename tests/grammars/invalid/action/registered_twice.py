def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Walk", action_walk)
self.add_action("Go", action_go)
self.add_action("Go on", action_go)
