self.remove_observation_view("Free")
# endblock
#startblock type: evaluation
def eval_go(self):
    return True
self.add_evaluation("Is it so?", eval_go)
