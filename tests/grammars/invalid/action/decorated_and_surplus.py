@retry(
    times=3,
)
async def action_go(self):
    assert move(1), "Did we move?"
x = 1; self.add_action("Go", action_go); y = 2
