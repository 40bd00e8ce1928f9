def action_go(self):
    rows = [
        # q: Is this a list? Yes. (99%)
        1,  #q: One? Yes. (99%)
    ]
    assert rows, "Are there rows?"
self.add_action(
    "Go",
    #q: Good? Yes. (99%)
    action_go)
