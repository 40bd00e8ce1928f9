def view_free(self):
    return ", ".join(map(str, get_state()["free"]))

self.add_observation_view("Free cells", view_free)
