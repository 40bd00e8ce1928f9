from tools.editor import WeaveEditor
WeaveEditor(self, "notes.txt")
editor: object = self.tools["editor-/app/notes.txt"]
for view in list(self.observation_views):
    if view["title"] == "Old":
        self.remove_observation_view("Old")
