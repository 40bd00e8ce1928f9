def action_gruß(self):
    naïve_π = "日本語 ∑ 🙂"
    größe = {"ключ": len(naïve_π)}
    assert größe["ключ"] > 3, "Ist der Text länger als drei Zeichen — wirklich?"
self.add_action("Grüße aus Köln", action_gruß)
