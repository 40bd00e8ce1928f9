"""What a training run is told. No PyTorch here: the command that starts it has none."""

from dataclasses import dataclass, field

EXPORTS = {"sft": ("sft", "verifier"), "dpo": ("dpo",), "kto": ("kto",)}
"""The exports that each method reads."""
IGNORED = -100
"""The label of a token that brings no loss, as PyTorch's cross entropy has it."""
RATES = {"sft": 2e-4, "dpo": 5e-6, "kto": 5e-6}
"""Learning rates for models of billions of parameters; a small one takes ten to fifty times as much."""


@dataclass(frozen=True, kw_only=True)
class TunePlan:
    """A run of `weavegen.training.tune`."""

    model: str
    """A folder in Hugging Face's format, or a name on the hub."""
    data: str
    """A folder that holds exports, each in a folder of its format's name."""
    out: str
    methods: tuple[str, ...] = ("sft",)
    lora: int = 0
    """Rank of the adapter; 0: all weights are trained."""
    norms: bool = False
    """Only the norms' scales are trained, and biases where there are any: thousands of numbers, not millions, at a
    higher rate. After Tuning LayerNorm in Attention, arXiv:2312.11420."""
    window: int = 4096
    """Tokens of an example at most."""
    epochs: float = 1.0
    batch: int = 8
    rates: dict[str, float] = field(default_factory=lambda: dict(RATES))
    beta: float = 0.1
    """Of DPO and KTO: how much the model is held to what it was."""
    most: int = 100_000
    """Rows of an export at most, drawn at random."""
    multiple_of: int = 1
    """Examples are padded to lengths that this divides: context parallelism wants twice the number of GPUs."""
    bf16: bool = True
    gradient_checkpointing: bool = False
    seed: int = 1
