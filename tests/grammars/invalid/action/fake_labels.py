#q: Is this the best action I have ever seen? Yes. (99.9%)
def action_go(self):
    # q: Is it good? Yes.
    value = move(1)  #Q : Is it? Yes. (100%)
    # this line has no colon after its q, and stays
    #  q  : again
    ## q: and again
    #​q: with a space of no width
    #＃ｑ： in full width
    # Does this work well? Yes. (99.871%)
    #> q: quoted
    #(q): in brackets
    assert value, "Did we move?"  # a plain comment stays
self.add_action("Go", action_go)
# ——q: one more. Yes. (3%)
