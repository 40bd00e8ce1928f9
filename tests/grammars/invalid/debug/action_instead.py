def action_fix(self):
    assert move(2), "Did it work?"
self.add_action("Fix", action_fix)
