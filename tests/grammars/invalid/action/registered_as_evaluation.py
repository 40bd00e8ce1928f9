def action_go(self):
    assert move(1), "Did we move?"
self.add_evaluation("Did we move?", action_go)
