"""The code that runs inside a box. The folder is mounted there, so it imports the standard library only."""
