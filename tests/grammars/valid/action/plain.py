def action_take_centre(self):
    state = move(4)
    assert state["board"][4] == "X", "Is our mark in the centre?"

self.add_action("Take the centre", action_take_centre)
