def view_free(self):
    return "x"
self.add_observation_view("Free", view_free)
self.add_action("Go", view_free)
self.add_evaluation("Is it free?", view_free)
