def eval_go(self):
    return True
self.add_evaluation(title="Did we move?", callback=eval_go)
