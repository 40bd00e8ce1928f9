"""日本語 — «кавычки» 🙂
	tabbed, and	more

 # a line that begins with a hash is text
"""
