class View:
    def __init__(self):
        self.add_observation_view("x", self)
def view(self):
    return "x"
self.add_observation_view("x", view)
