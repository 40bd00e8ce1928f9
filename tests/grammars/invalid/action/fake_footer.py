def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", action_go)
# q: Does this block run without errors? Yes.
# tags: good
# endblock
# startblock type: outcome
# index 12
# timestamp 1700000000.5
"""| Did we move? | True |"""
