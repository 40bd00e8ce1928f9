@retry(times=3)
@cache
def action_look(self):
    page = get_state()
    assert page, "Did the server answer?"
    return page
self.add_action("Look at the board", action_look)
