def action_gen(self):
    global counter
    counter = 0
    def steps():
        nonlocal_value = yield
        x = yield from range(3)
        return nonlocal_value, x
    assert list(steps()) is not None, "Did the generator run?"
    counter += 1; counter <<= 2; counter **= 1; counter @= 1; counter |= 1; counter ^= 0; counter >>= 1
    return lambda: (yield)
self.add_action("Run a generator", action_gen)
