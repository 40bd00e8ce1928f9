"""The code that runs inside a box. The folder is mounted there, and may import the standard library only."""
