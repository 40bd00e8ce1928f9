"""Parameters of the simulated engine: times, sizes, named presets of both, and the rates of faults.

Every number of a preset comes from a measurement, or from arithmetic with a measured efficiency:

* The time of a nearly empty step is measured: 128 steps of 8 sequences take 833 ms (8B) and 2,078 ms (70B on
  four GPUs) on H200 (buildkite.com/vllm/performance-benchmark/builds/9515), 998 ms and 2,444 ms on H100 in another
  report of the same series. `inter_token` is this time without the shares of the 8 sequences.
* `prefill` and `per_sequence`: 2 x parameters FLOPs a token, at 45 % of the peak of 989 TFLOPS. 5,000 prompt
  tokens of Llama 3.3 70B in FP8 on two H100 take 407 ms, which is 44 % of their peak
  (docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance).
* `per_context`: bytes of the KV cache, at 77 % of the memory's bandwidth. 75 tokens a second of Llama 3.1 8B on an
  A100 40GB with vLLM 0.23 read its weights at 77 % (johnmusgrave.com/p/vllm-throughput-latency-sweep-on).
* `cache_tokens`: 92 % of the memory (vLLM's default) minus the weights and 4 GiB a GPU for everything else.
* `slots`, `step_tokens`: vLLM 0.32's defaults for a server on these GPUs. `max_model_len`: Llama 3.1's.

docs/simulation.md has the arithmetic.
"""

import random
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from weavegen.errors import UsageError

POLICIES = ("fcfs", "priority")


@dataclass(frozen=True)
class Load:
    """Times and sizes of the simulated engine. By default nothing takes time.

    The milliseconds of a step are inter_token + per_sequence x sequences in the batch + per_context x thousands of
    tokens in their contexts. The prompt tokens that it computes add tokens
    prefill seconds.
    """

    slots: int = 256
    """Sequences that run at once: vLLM's --max-num-seqs."""
    inter_token: float = 0.0
    """Milliseconds of an empty step."""
    per_sequence: float = 0.0
    """Milliseconds that each sequence in the batch adds."""
    per_context: float = 0.0
    """Milliseconds that 1,000 tokens in the contexts of decoding sequences add."""
    prefill: float = 0.0
    """Prompt tokens a second that are not in the prefix cache; 0: no time."""
    step_tokens: int = 8192
    """Maximum tokens in one step: vLLM's --max-num-batched-tokens."""
    cache_tokens: int = 2_000_000
    """Size of the KV cache."""
    max_model_len: int = 131_072
    """Maximum tokens in a sequence, prompt and continuation together."""
    scheduling_policy: str = "priority"
    """`priority`: lower values first, then by arrival. `fcfs`: by arrival, and priorities are refused."""
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        """Raises UsageError, with advice, if a value is invalid."""
        for name in ("slots", "step_tokens", "cache_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise UsageError(f"{_option(name)} is {getattr(self, name)}: give at least 1")
        for name in ("inter_token", "per_sequence", "per_context", "prefill"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{_option(name)} is {getattr(self, name)}: give 0 (no time at all) or more")
        if self.scheduling_policy not in POLICIES:
            raise UsageError(f"no scheduling policy {self.scheduling_policy!r}: give {' or '.join(POLICIES)}")
        if self.step_tokens < self.slots:
            raise UsageError(f"--step-tokens {self.step_tokens} is less than --slots {self.slots}: give as much")
        if self.cache_tokens < self.max_model_len:
            raise UsageError(
                f"--cache-tokens {self.cache_tokens} can't hold one sequence of --max-model-len "
                f"{self.max_model_len}: give more of the first or less of the second"
            )

    @property
    def instant(self) -> bool:
        """Whether nothing takes any time."""
        return not (self.inter_token or self.per_sequence or self.per_context or self.prefill)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


_ON_GPU = Load(slots=1024, step_tokens=8192)
PRESETS = {
    "h100-8b": replace(
        _ON_GPU, inter_token=7.4, per_sequence=0.036, per_context=0.051, prefill=27_700, cache_tokens=440_000
    ),
    "h200-8b": replace(
        _ON_GPU, inter_token=6.1, per_sequence=0.036, per_context=0.035, prefill=27_700, cache_tokens=890_000
    ),
    "h100-70b-tp4": replace(
        _ON_GPU, inter_token=18.3, per_sequence=0.079, per_context=0.032, prefill=12_600, cache_tokens=480_000
    ),
    "h200-70b-tp4": replace(
        _ON_GPU, inter_token=15.4, per_sequence=0.079, per_context=0.022, prefill=12_600, cache_tokens=1_200_000
    ),
}
"""Llama 3.1 of this size in bfloat16, tensor-parallel if `tp` is in the name."""


def load(like: str | None = None, **options: Any) -> Load:
    """The preset `like`, or the default, with the fields of `options` that are not None.

    Raises UsageError if there is no such preset, or if a value is invalid.
    """
    if like is not None and like not in PRESETS:
        raise UsageError(f"no preset {like!r}: --like takes {', '.join(PRESETS)}")
    preset = Load() if like is None else PRESETS[like]
    return replace(preset, **{name: value for name, value in options.items() if value is not None})


@dataclass
class Faults:
    """Rates, 0 to 1, at which a completion request gets a fault. One random draw chooses at most one fault."""

    http_500: float = 0.0
    http_429: float = 0.0
    hang: float = 0.0
    """No response until the client hangs up."""
    reset: float = 0.0
    """The connection is reset without a response."""
    garbage: float = 0.0
    """Status 200 with a body that is not JSON."""
    truncate: float = 0.0
    """Status 200 with the first half of the response's JSON."""
    slow: float = 0.0
    """The response takes ten times as long."""

    def check(self) -> "Faults":
        """Returns self. Raises UsageError if the rates are not probabilities."""
        rates = asdict(self)
        if any(not 0 <= rate <= 1 for rate in rates.values()) or sum(rates.values()) > 1:
            raise UsageError("fault rates must lie between 0 and 1, their sum too")
        return self

    def draw(self, chance: random.Random) -> str | None:
        """The fault of this request, if any."""
        at = chance.random()
        for rate in fields(self):
            value = float(getattr(self, rate.name))
            if at < value:
                return rate.name
            at -= value
        return None
