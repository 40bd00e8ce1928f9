"""I want to see the free cells."""
def view_free(self):
    return str(get_state()["free"])
self.add_observation_view("Free", view_free)
print("done")
