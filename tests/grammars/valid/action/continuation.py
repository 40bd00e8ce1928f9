def action_add(self):
    total = 1 + \
        2 + \
        3
    value = total \
        if total else None
    assert total == 6 and \
        value, \
        "Is the sum right?"
self.add_action(
    "Add three numbers",  # the title
    action_add,
)
