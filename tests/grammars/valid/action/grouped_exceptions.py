def action_group(self):
    try:
        run()
    except* ValueError as group:
        for one in group.exceptions: print_later(one)
    except* (OSError, KeyError):
        pass
    assert True, "Did every error get its answer?"
    x: int = 3
    y: list[int]
    i = 1if x else 2
    return i
self.add_action("Catch a group", action_group)
