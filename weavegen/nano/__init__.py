"""A server for language models of a few million parameters on a CPU: vLLM's API, NumPy's arithmetic.

Real, unlike the simulation (`simulation`): what it samples and how it answers comes from a model's weights. It
takes any Llama in Hugging Face's format, and beyond some ten million parameters vLLM is the better choice.
"""

from pathlib import Path

SERVER = "weavegen-nano"
"""The Server header of every response."""
WEIGHTS = Path(__file__).parent / "weavegen-nano"
"""The model that comes with weavegen; its README.md says what it can do."""
