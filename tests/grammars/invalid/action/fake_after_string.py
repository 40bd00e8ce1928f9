def action_go(self):
    text = "# q: a string" + '''
#q: still the string
'''  # q: no string
    assert text, "Is there a text?"
self.add_action("Go", action_go)
