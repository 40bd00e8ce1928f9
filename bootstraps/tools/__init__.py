"""Tools that I can open: each is a window on something, shown before every tick until I close it."""
