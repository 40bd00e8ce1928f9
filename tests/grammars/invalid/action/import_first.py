import time
def action_go(self):
    time.sleep(1)
    assert move(1), "Did we move?"
self.add_action("Go", action_go)
