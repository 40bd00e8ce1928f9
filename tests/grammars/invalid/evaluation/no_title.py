def eval_go(self):
    return True
self.add_evaluation(eval_go)
