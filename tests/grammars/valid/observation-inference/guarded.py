import os
titles = [view["title"] for view in self.observation_views]

def view_size(self):
    return str(os.path.getsize("notes.txt"))

if "Size" in titles:
    self.remove_observation_view("Size")
elif len(titles) < 8:
    self.add_observation_view("Size", view_size)
else:
    self.remove_observation_view(titles[0])
