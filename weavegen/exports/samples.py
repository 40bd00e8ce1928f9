"""`dpo` and `grpo`: candidates that were sampled after one prompt, compared by their values.

`dpo` has two completions, of which one is better; `grpo` all samples, with what a reward function needs.
"""

from weavegen.exports.completions import Record, completion, of_prompts
from weavegen.exports.format import Options, Row
from weavegen.exports.read_prompts import ModelPrompt

MIN_MARGIN = 1.0
"""Default of --min-margin, in log odds: the better text is then at least e times as likely a yes."""


def near_ties(options: Options) -> tuple[str, str]:
    """Pairs whose texts differ little in value and not in outcome teach noise."""
    least = MIN_MARGIN if options.min_margin is None else options.min_margin
    reason = f"the values differ by less than {least:g}, and the outcomes do not differ (--min-margin)"
    return f"not outcome_differs and margin < {least!r}", reason


def pair(record: Record, prompt: ModelPrompt) -> Row:
    texts = {name: completion(prompt, record[name], record[f"{name}_reason"]) for name in ("chosen", "rejected")}
    return {"prompt": prompt.text + prompt.prefix} | texts


def group(kept: Record, prompt: ModelPrompt) -> Row:
    samples = [completion(prompt, *sampled) for sampled in zip(kept["texts"], kept["reasons"], strict=True)]
    return {"prompt": prompt.text + prompt.prefix, "prefix": prompt.prefix, "samples": samples}


# By default one pair per block: prompts are long, and the first pair is the most informative.
DPO = of_prompts("dpo", pair, narrow=lambda options: f"pair <= {options.per_block or 1:d}", weak=near_ties)
# TRL passes every column to reward functions by name, and reserves names of its own: prompts, completions.
GRPO = of_prompts("grpo", group)
