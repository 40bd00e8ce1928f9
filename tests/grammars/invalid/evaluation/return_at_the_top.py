def eval_go(self):
    return True
self.add_evaluation("Did we move?", eval_go)
return True
