action_go = lambda self: move(1)
self.add_action("Go", action_go)
