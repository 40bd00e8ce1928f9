"""The tokenizer of a model that is trained on traces from scratch.

A small model's window is short, and so is its understanding: what of a prompt it can't make use of is left out by
the tokenizer's normalizer, so the same is left out wherever the model is served. What remains of a prompt is the
trace's text up to where the model goes on. Its words are whole phrases: byte-level BPE that may merge across
spaces, but never across digits, quotes that open a block's prose, marks of a table, or the beginnings of bodies.
"""

import re
from collections.abc import Iterable

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from weavegen.errors import UsageError
from weavegen.kernel import prompts
from weavegen.nano.texts import BORDER, END

BEGIN = "<s>"
"""The token that begins a text."""

LEFT_OUT = (
    # The template, with the instruction and the hint: the header behind it says which block comes.
    r" \[INST\] ",
    r"# (?:The trace above stops where|Before the next block of type)[\s\S]*? \[/INST\]\n",
    # Header lines that say nothing about what to write.
    r"#(?:subagent|index|timestamp|time_remaining|block_size) [^\n]*\n",
    r"# (?:Starting new tick with block #|Current Working Directory: )[^\n]*\n",
    # A model of this size makes nothing of examples.
    r"# START RETRIEVED BLOCKS\n[\s\S]*?# END RETRIEVED BLOCKS\n\n",
    # How sure the answer was that a label says.
    r"(?<=Yes\.|.No\.) \([0-9.]+%\)(?=\n|$)",
)  # fmt: skip
"""Regular expressions (Oniguruma's) of what the model does not read."""

WORDS = (
    r"#q: [^\n]*?\? ?",  # a question is one word if it is asked often enough
    r"(?:Yes|No)(?=\.)",
    r'"""',
    r"def (?:action|eval)_",
    "#bm25_query ",
    r"\d",
    r"\n *",
    r" \| ",
    r"# [+-] ",
    r'\["',
    r'(?:(?!"""|\["| \| )[^\d\n.?:,])+[.?:,]*',
)
"""Regular expressions between whose matches no merge reaches."""


def train(texts: Iterable[str], size: int) -> Tokenizer:
    """A tokenizer of `size` tokens for rendered blocks like these. Equal texts give an equal tokenizer.

    Raises UsageError where the texts hold too few answers: the evaluator needs a token for each.
    """
    tokenizer = Tokenizer(models.BPE())
    rules = [re.escape(prompts.calibration()), *LEFT_OUT]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(rule), "") for rule in rules])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("|".join(WORDS)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(BEGIN, special=True, normalized=False), AddedToken(END, special=True, normalized=False)]
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        min_frequency=10,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(BORDER, normalized=True)])
    if None in (tokenizer.token_to_id("Yes"), tokenizer.token_to_id("No")):
        raise UsageError("the traces hold too few answers, or of one kind alone: enqueue more traces")
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, begin)])
    return tokenizer
