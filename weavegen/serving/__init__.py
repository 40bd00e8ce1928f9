"""vLLM's API, for the model servers that are written here: the simulation (`sim`) and `nano`."""
