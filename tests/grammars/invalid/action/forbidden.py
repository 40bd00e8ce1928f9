def action_go(self):
    print("going")
    self.task.add_evaluation("Done?", is_done)
    other.task.add_evaluation("Done?", is_done)
    self.add_evaluation("Done?", is_done)
    self.add_observation_view("x", view)
    other.add_observation_view("x", view)
    assert move(1), "Did we move?"
self.add_action("Go", action_go)
