def action_tab(self):
	if True:
		assert self, "Is there a self?"
self.add_action("Indent with tabs", action_tab)
