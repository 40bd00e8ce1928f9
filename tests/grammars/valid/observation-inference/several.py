def view_a(self):
    return "a"
@cache
def view_b(self):
    return "b"
try:
    self.remove_observation_view("A")
except ValueError:
    pass
self.add_observation_view("A", view_a)
self.add_observation_view("B", view_b)
