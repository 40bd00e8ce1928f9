self.remove_observation_view("Free cells")
