"""The model client with a real vLLM, which runs on the CPU with a tiny model of random weights."""
