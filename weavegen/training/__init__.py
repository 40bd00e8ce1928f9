"""Models from traces: a small one from scratch, and the loop in which a model is trained on what it wrote.

What needs PyTorch says so at its head: it comes with the extra `training`, and no other part of weavegen needs it.
"""
