"""What every other package may import: the step protocol, replay, settings, seeds, prompts. Pure."""
