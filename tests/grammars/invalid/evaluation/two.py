def eval_one(self):
    return True
def eval_two(self):
    return True
self.add_evaluation("One?", eval_one)
self.add_evaluation("Two?", eval_two)
