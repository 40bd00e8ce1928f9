"""The traceback says KeyError: 'board'. I had read the key from the error answer. Next time I check first."""
