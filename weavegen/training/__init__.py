"""Fine-tuning of a model on exports of its own traces. `tune` needs PyTorch (the extra `training`)."""
