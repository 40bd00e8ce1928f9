class ActionGo:
    def __call__(self, agent):
        assert move(1), "Did we move?"
self.add_action("Go", ActionGo())
