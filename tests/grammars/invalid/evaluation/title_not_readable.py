def eval_go(self):
    return True
self.add_evaluation(f"Is it {1}?", eval_go)
