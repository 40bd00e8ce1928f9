"""What runs inside the box: the whole folder is mounted there. Standard library alone."""
