"""A server for language models of a few million parameters on a CPU, with vLLM's API and NumPy's arithmetic.

Unlike the simulation (`simulation/`) it computes with a model's weights. It loads any Llama in Hugging Face's
format; beyond about ten million parameters vLLM is the better choice.
"""

from pathlib import Path

SERVER = "weavegen-nano"
"""The Server header of every response."""
WEIGHTS = Path(__file__).parent / "weavegen-nano"
"""The model that is shipped with weavegen. Its README.md describes it."""
