def action_go(self): assert move(1), "Did the move go through?"; return 1
self.add_action("Go", action_go);
