"""What every other room may import: the step protocol, replay, settings, seeds, prompts. Pure."""
