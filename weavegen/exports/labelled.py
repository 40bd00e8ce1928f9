"""`sft`, `dpo`, `kto`, `grpo`, `stepwise` and `verifier`: what was written after a prompt, and what is known about it.

`sft` has the block that was kept, for supervised fine-tuning; `dpo` two completions, of which one is better; `kto` a
completion, and whether it is wanted; `grpo` all samples, with what a reward function needs; `stepwise` a tick's blocks
as steps, each right or wrong, for process reward models, and again with a last step that was tried and not chosen;
`verifier` a question about a block, and the answer, which was drawn or is known.
"""

import re

from weavegen.exports.completions import Record, completion, of_prompts, split_body
from weavegen.exports.format import Options, Row
from weavegen.exports.read_prompts import END, ModelPrompt

MIN_MARGIN = 1.0
"""Default of --min-margin, in log odds: the better text is then at least e times as likely a yes."""
LABELS = re.compile(r"^#q: .*\n", re.MULTILINE)
"""Lines of a footer with a label. No line of a body begins like this (render.normalise_body)."""


def sft(record: Record, prompt: ModelPrompt) -> Row:
    text, rest = split_body(prompt, record["body"])
    # A text that was cut off at the token limit has an end only where it was cut again, to its legal structure.
    ended = record["finish_reason"] == "stop" or record["was_rewritten"]
    return {"prompt": text, "completion": rest + prompt.end * ended}


def near_ties(options: Options) -> tuple[str, str]:
    """Pairs whose texts differ little in value and not in outcome teach noise."""
    least = MIN_MARGIN if options.min_margin is None else options.min_margin
    reason = f"the values differ by less than {least:g}, and the outcomes do not differ (--min-margin)"
    return f"not outcome_differs and margin < {least!r}", reason


def dpo(record: Record, prompt: ModelPrompt) -> Row:
    texts = {name: completion(prompt, record[name], record[f"{name}_reason"]) for name in ("chosen", "rejected")}
    return {"prompt": prompt.text + prompt.prefix} | texts


def kto(record: Record, prompt: ModelPrompt) -> Row:
    text = completion(prompt, record["text"], record["finish_reason"])
    return {"prompt": prompt.text + prompt.prefix, "completion": text}


def grpo(kept: Record, prompt: ModelPrompt) -> Row:
    samples = [completion(prompt, *sampled) for sampled in zip(kept["texts"], kept["reasons"], strict=True)]
    return {"prompt": prompt.text + prompt.prefix, "prefix": prompt.prefix, "samples": samples}


def verifier(record: Record, prompt: ModelPrompt) -> Row:
    return {"context": f"{prompt.text}{record['body']}\n"}


def stepwise(tick: Record, prompt: ModelPrompt) -> Row:
    first, *others = tick["blocks"]
    text, rest = split_body(prompt, first["body"])
    completions, steps, before = [rest + END], [first], ""
    for block in others:
        # The labels in the footers are what is to be learned, so the text must not contain them.
        before += "\n" + LABELS.sub("", block["rendered"]).removesuffix("\n")
        if block["label"] is not None:
            completions.append(before)
            steps.append(block)
            before = ""
    lists = {"labels": "label", "types": "type", "indexes": "index"}
    columns = {name: [block[field] for block in steps] for name, field in lists.items()}
    return {"prompt": text, "completions": completions} | columns


SFT = of_prompts("sft", sft)
# By default one pair per block: prompts are long, and the first pair is the most informative.
DPO = of_prompts("dpo", dpo, narrow=lambda options: f"pair <= {options.per_block or 1:d}", weak=near_ties)
# By default one candidate of each label per block: the one whose label is the most certain.
KTO = of_prompts("kto", kto, narrow=lambda options: f"rank <= {options.per_block or 1:d}")
# TRL passes every column to reward functions by name, and reserves names of its own: prompts, completions.
GRPO = of_prompts("grpo", grpo)
STEPWISE = of_prompts("stepwise", stepwise)
VERIFIER = of_prompts("verifier", verifier)
