"""What a trace is: its blocks, their text form, and the query syntax. Pure."""
