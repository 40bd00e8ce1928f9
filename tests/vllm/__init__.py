"""The model client against a real vLLM, which runs on the CPU with a tiny model of random weights."""
