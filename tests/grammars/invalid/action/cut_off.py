def action_go(self):
    value = move(
