# startblock type: action
#subagent main
# timestamp 17.25
# time_remaining 99.0 seconds
# block_size 768
# Current Working Directory: /app
def action_go(self):
    assert move(1), "Did we move?"
self.add_action("Go", action_go)
