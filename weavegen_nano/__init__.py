"""A server for language models of a few million parameters on a CPU, with vLLM's API and NumPy arithmetic.

Unlike the simulation (`simulation/`), it computes with a model's weights. It loads any Llama in Hugging Face's
format. For models of more than about ten million parameters use vLLM.
"""

from pathlib import Path

SERVER = "weavegen-nano"
"""The Server header of every response."""
WEIGHTS = Path(__file__).parent / "weavegen-nano"
"""The model that is shipped with weavegen. Its README.md describes it."""
TRAINING = "training.json"
"""How `pretraining` trained a model, in the model's folder."""
