def eval_go(self):
    assert a
    assert b, "Is it b?"
    return True
self.add_evaluation("Did we move?", eval_go)
