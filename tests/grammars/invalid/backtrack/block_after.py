"""That was wrong."""
# endblock
# startblock type: action
def action_go(self):
    move(1)
self.add_action("Go", action_go)
