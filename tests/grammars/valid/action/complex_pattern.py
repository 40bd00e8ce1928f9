def action_match(self):
    match get_state():
        case 1 - 2j | -1 + 2.5e-3j | 1_0 + 2_0J:
            found = 1
        case {0x1f: x, -1 - 1.5j: y}:
            found = x
    assert found, "Was anything found?"
self.add_action("Match the state", action_match)
