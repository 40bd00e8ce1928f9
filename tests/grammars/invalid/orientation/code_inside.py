"""I will do this:
import os
def action_go(self):
    print("going")
    self.add_action("Go", action_go)
[INST]
"""
