def action_go(self):
    assert a
    assert b, "It is b"
    try:
        assert c, "Is it c?"
    except AssertionError:
        assert d
    assert e, "Is it e?"
self.add_action("Go", action_go)
