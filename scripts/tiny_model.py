"""A tiny Llama with random weights for tests of a real server, and what it computes without one.

Run by the interpreter of vLLM's environment (scripts/vllm.sh), which has torch and transformers:

    tiny_model.py make FOLDER       writes the model and its tokenizer
    tiny_model.py forward FOLDER    reads token ids, a JSON list of lists, from standard input; writes to standard
                                    output, as JSON, {"chosen": logprob of each token but the first, for each list,
                                    "next": logprob of every token of the vocabulary after the end of each list}
"""

import json
import logging
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).parents[1]
TEXTS = ("bootstraps/texts/*.txt", "tests/bootstraps/weave_agent/*.py")
"""Training text of the tokenizer: files that hardly ever change, because a change would change every sampled text."""
ANSWERS = "#q: Is it so? Yes.\n#q: Is it so? No.\nyes or no, YES or NO\n"
"""Repeated, so that both answers are single tokens whatever the files contain."""
VOCABULARY = 2048
SPECIAL = ("<s>", "</s>", "<pad>")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE that puts `<s>` before every text, like Llama's tokenizers."""
    texts = [path.read_text() for pattern in TEXTS for path in sorted(ROOT.glob(pattern))]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*texts, ANSWERS * 500], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def make(folder: str) -> None:
    """Write tokenizer, weights and configuration to `folder`. Equal source files give equal results."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    assert len(tokenizer) == VOCABULARY
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        initializer_range=0.15,  # at the usual 0.02 all tokens would be about equally likely, whatever the prompt
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[1] = 0  # `</s>` is never among the likeliest tokens, so texts reach their requested length
    model.save_pretrained(folder)


def forward(folder: str, sequences: list[list[int]]) -> dict[str, list[list[float]]]:
    """Natural logprobs of the softmax over the whole vocabulary, by a plain pass in float32.

    See the module's docstring.
    """
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chosen, following = [], []
    with torch.inference_mode():
        for ids in sequences:
            row = torch.tensor(ids)
            logprobs = model(row[None]).logits[0].log_softmax(-1)  # (tokens, vocabulary)
            chosen.append(logprobs[:-1].gather(1, row[1:, None])[:, 0].tolist())
            following.append(logprobs[-1].tolist())
    return {"chosen": chosen, "next": following}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    verb, place = sys.argv[1:]
    if verb == "make":
        make(place)
    else:
        json.dump(forward(place, json.load(sys.stdin)), sys.stdout)
