"""Training: a small model from scratch, and fine-tuning of a model on its own traces.

Modules that need PyTorch (the extra `training`) say so in their docstring.
"""
