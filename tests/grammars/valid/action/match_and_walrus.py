def action_match(self):
    match get_state():
        case {"over": True, "result": str() as result, **rest} if rest:
            found = result
        case [1, 2 | 3, *others] | (4, others):
            found = others
        case Point(x=0, y=-1.5) | "text" | None:
            found = 0
        case _:
            found = ...
    if (n := len(str(found))) > 3 and (m := n) <= 9 and n != 4 or n == 4:
        found = m
    match = case = found
    print_me = match @ case if n <= 3 else n ** -2
    assert n, "Was anything found?"
    return print_me
self.add_action("Match the state", action_match)
