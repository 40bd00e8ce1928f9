def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", action_go)
action_go(self)
if __name__ == "__main__":
    action_go(None)
