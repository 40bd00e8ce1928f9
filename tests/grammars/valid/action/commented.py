# First the corner, since the centre is taken.
def action_corner(self):  # index of the corner: 0
    # title of the move, for the table
    move(0)  # a comment that ends in yes (or no)
    assert get_state()["board"][0] != " ", "Is the corner ours?"
# and now it is registered
self.add_action("Take a corner", action_corner)
# that is all
