"""The tokenizer of a model that is trained on traces from scratch.

A small model has a short window and can't use some parts of a prompt. The tokenizer's normalizer removes these
parts, so that they are missing wherever the model is served; the trace's text remains. Tokens are whole phrases:
byte-level BPE that may merge across spaces, but not across digits, the quotes that open prose, the marks of a
table, or the beginnings of bodies.
"""

import re
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from weavegen.errors import UsageError
from weavegen.kernel import prompts
from weavegen.kernel.window import BORDER
from weavegen_nano.texts import END

BEGIN = "<s>"
"""First token of a text."""

LEFT_OUT = (
    # The template with instruction and hint. The header after it already says which block comes.
    r" \[INST\] ",
    r"# (?:The trace above stops where|Before the next block of type)[\s\S]*? \[/INST\]\n",
    # Header lines without information about the body.
    r"#(?:subagent|index|timestamp|time_remaining|block_size) [^\n]*\n",
    r"# (?:Starting new tick with block #|Current Working Directory: )[^\n]*\n",
    # A model of this size can't use examples.
    r"# START RETRIEVED BLOCKS\n[\s\S]*?# END RETRIEVED BLOCKS\n\n",
    # The percentage of a label.
    r"(?<=Yes\.|.No\.) \([0-9.]+%\)(?=\n|$)",
)  # fmt: skip
"""Removed parts, as regular expressions of Oniguruma."""

WORDS = (
    r"#q: [^\n]*?\? ?",  # a frequent question becomes one token
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
"""No merge crosses the border of a match of these regular expressions."""


def train(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a tokenizer of `size` tokens on rendered blocks. Equal texts give an equal tokenizer.

    Raises UsageError if `Yes` or `No` is too rare to become a token, which the evaluator needs.
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
        raise UsageError("the traces have too few answers Yes or too few answers No: enqueue more traces")
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, begin)])
    return tokenizer
