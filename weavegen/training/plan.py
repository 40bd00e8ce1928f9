"""The plan of a training run. Does not import PyTorch, so that the command `weavegen tune` can use it."""

from dataclasses import dataclass, field

EXPORTS = {
    "sft": ("sft", "verifier"), "dpo": ("dpo",), "kto": ("kto",), "text": ("text",), "trajectories": ("trajectories",),
}  # fmt: skip
"""The exports that each method reads."""
IGNORED = -100
"""Label of a token without loss, as in PyTorch's cross entropy."""
RATES = {"sft": 2e-4, "dpo": 5e-6, "kto": 5e-6, "text": 2e-4, "trajectories": 2e-4}
"""Learning rates of adapters for models with billions of parameters. Small models need ten to fifty times more."""


@dataclass(frozen=True, kw_only=True)
class TunePlan:
    """A run of `weavegen.training.tune`, as in its JSON file."""

    model: str
    """A folder in Hugging Face's format, or a name on the hub."""
    data: str
    """A folder with one folder of exports per format."""
    out: str
    methods: tuple[str, ...] = ("sft",)
    lora: int = 0
    """Rank of the LoRA adapter; 0: train all weights."""
    norms: bool = False
    """Train only norm scales and biases, after "Tuning LayerNorm in Attention" (arXiv:2312.11420). These are
    thousands of numbers instead of millions, and need a higher learning rate."""
    balance: bool = False
    """For SFT: equal numbers of yes and no answers to each question, drawn at random."""
    replay: float = 1.0
    """For SFT: answers that the model drew itself, for each answer that execution gave, drawn at random. They keep its
    answers to all other questions as they are: a judge that learns only whether actions run also says
    "no" more often when it is asked whether an orientation is good."""
    window: int = 4096
    """Maximum number of tokens of an example."""
    epochs: float = 1.0
    batch: int = 8
    rates: dict[str, float] = field(default_factory=lambda: dict(RATES))
    beta: float = 0.1
    """For DPO and KTO: how strongly training keeps the model close to the original model."""
    most: int = 100_000
    """Maximum number of rows of an export, drawn at random."""
    min_margin: float | None = None
    """For DPO: an option of the export, see exports/labelled.py."""
    multiple_of: int = 1
    """Examples are padded to a multiple of this. Context parallelism needs twice the number of GPUs."""
    bf16: bool = True
    """On a GPU. A CPU always computes in float32: most of them emulate bfloat16, forty times slower."""
    bf16_weights: bool = False
    """Load the weights as bfloat16, in half the memory."""
    load_in_4bit: bool = False
    """Load the weights in 4 bits. Needs a LoRA adapter and bitsandbytes."""
    merge: bool = False
    """Write the weights with the LoRA adapter added to them, in place of the adapter."""
    gradient_checkpointing: bool = False
    """Compute activations again for the backward pass, in place of keeping them."""
    seed: int = 1
