"""Vectors of texts by a language model. Run by the interpreter of scripts/trl.sh:

    python -m bench.embed MODEL < texts.json     MODEL: a folder of a model; texts.json: a list of texts

Writes JSON: for each text, the mean of the model's last hidden states.
"""

import json
import sys

import torch
from transformers import AutoModel, AutoTokenizer

WINDOW = 1024
"""Tokens of a text that are read."""


def main(folder: str) -> None:
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    words = AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in json.load(sys.stdin):
        ids = torch.tensor([words(text)["input_ids"][:WINDOW]])
        with torch.inference_mode():
            vectors.append(model(input_ids=ids).last_hidden_state[0].mean(0).tolist())
    json.dump(vectors, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
