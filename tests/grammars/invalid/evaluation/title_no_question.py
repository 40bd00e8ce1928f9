def eval_go(self):
    return True
self.add_evaluation("We moved.", eval_go)
