def action_helper(cell):
    return move(cell)
def action_go(self):
    assert action_helper(1), "Did we move?"
self.add_action("Go", action_go)
