"""What a job made, as one page: what it was, how good, what it cost, how it was set."""
