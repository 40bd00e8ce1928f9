def eval_mark_is_set(self):
    return get_state()["board"][4] == "X"

self.add_evaluation("Is our mark in the centre?", eval_mark_is_set)
