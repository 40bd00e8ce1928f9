def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", action_go)

def action_again(self):
    move(2)
self.add_action("Again", action_again)
