def eval_go(self):
    return True
self.add_evaluation("Did we move?", eval_go)
a = 1; b = 2; c = 3; d = 4; e = 5
