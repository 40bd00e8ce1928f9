"""One turn of the loop with weavegen-nano: it writes, is measured, is trained, and writes again."""

import dataclasses
import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from simulation.process import Process
from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.trl import PYTHON
from weavegen.chat_template import renderer
from weavegen.cli import tune
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.kernel.template import derive
from weavegen_nano import WEIGHTS

pytestmark = pytest.mark.timeout(600)  # the time of the first test includes its fixtures

YES = "label and source in ('drawn', 'ran')"
"""Answers to questions that the model has been trained on."""
USUAL = "type in ('orientation', 'action', 'expectation', 'evaluation')"
"""Blocks of types that the model has been trained on."""
SUMS = ROOT / "bootstraps" / "sums.py"
OF_THE_SHARE = ("value", "low", "high", "of")


@pytest.fixture(scope="module")
def nano(trl_environ: dict[str, str]) -> Iterator[Installation]:
    """An installation with weavegen's own model."""
    with installed(**(trl_environ | {"WEAVEGEN_MODEL": "nano", "PYTHONPATH": str(ROOT)})) as started:
        yield started


@pytest.fixture(scope="module")
def evaluated(nano: Installation) -> Any:
    return nano.json("eval", "--file", SUMS, "-n", "2", "--ticks", "2", "-p", "sums=3")


def tuned(nano: Installation, out: Path, *options: str | Path) -> Any:
    """A short training on the evaluation's jobs."""
    short = ["--window", "512", "--most", "12", "--batch", "4", "--rate", "1e-4", "--launch", str(PYTHON)]
    return nano.json("tune", WEIGHTS, "--out", out, "--where", "job_id > 0", *short, *options)


def test_a_model_is_measured(nano: Installation, evaluated: Any) -> None:
    for name in ("legal", "ran"):
        assert tuple(evaluated[name]) == OF_THE_SHARE
        assert 0 <= evaluated[name]["low"] <= evaluated[name]["value"] <= evaluated[name]["high"] <= 1
    assert evaluated["success"]["sums.py"]["of"] == 2
    assert evaluated["candidates_per_block"]["value"] >= 4
    assert nano.sql("select distinct params::text from traces") == [('{"sums": 3}',)]
    [[chosen, alone]] = nano.sql(
        "select min(job_id), max(job_id) from traces t join jobs j on j.id = t.job_id where j.name like 'eval %'"
    )
    [[legal]] = nano.sql(
        "select avg(p.compiles::int) from candidates c join penalties p on p.candidate_id = c.id "
        "join traces t on t.id = c.trace_id where t.job_id = :job",
        job=alone,
    )
    assert evaluated["legal"]["value"] == pytest.approx(float(legal))
    rounds = nano.sql(
        "select max(c.round) from candidates c join traces t on t.id = c.trace_id where t.job_id = :job", job=alone
    )
    assert rounds == [(0,)]
    assert chosen < alone
    [[sampled, kept]] = nano.sql(
        "select (select sum(candidates) from traces where job_id = :job), count(*) from sft_examples "
        "where job_id = :job",
        job=chosen,
    )
    assert evaluated["candidates_per_block"]["value"] == pytest.approx(float(sampled) / kept)


@pytest.mark.parametrize(
    "options", [("--lora", "4"), ("--norms",), ("--method", "sft", "--method", "dpo", "--min-margin", "0")]
)
def test_it_is_trained_and_served_beside_the_original(
    nano: Installation, evaluated: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out, name = tmp_path / "round-1", f"round-{len(options)}"
    known = ("--where", f"sft:{USUAL}", "--where", f"verifier:{YES}")
    told = tuned(nano, out, *options, *known, "--load", name)
    assert told["rows"]["sft"] > 12, "Is the evaluation's corpus there?"
    assert all(0 < loss < 20 for loss in told["losses"].values()), told
    # These are the model's own blocks and answers: 0.04 to 0.06 in six seeds. With another end after each block it is
    # 0.4 and more. A block of a type that the model has not learnt costs 70 to 260 nats, most for its question.
    assert told["losses"]["sft"] < 0.2, told
    plan = json.loads((out / "plan.json").read_text())
    assert (plan["most"], plan["window"]) == (12, 512)
    assert (out / "adapter_config.json").exists() == ("--lora" in options)
    if "--lora" not in options:
        before, after = (load_file(folder / "model.safetensors") for folder in (WEIGHTS, out))
        trained = {after[name].ndim for name in after if not np.array_equal(before[name], after[name])}
        assert trained == ({1} if "--norms" in options else {1, 2})
    job = nano.json("enqueue", SUMS, "--ticks", "1", "--model", name)["job"]
    nano.wait(job)
    wrote = "select j.model, t.status from jobs j join traces t on t.job_id = j.id where j.id = :job"
    assert nano.sql(wrote, job=job) == [(name, "ended")]
    assert nano.cli("pool", "unload", name).returncode == 0


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (("--method", "text", "--gradient-checkpointing"), "text"),
        (("--lora", "4", "--merge"), "sft"),
        (("--lora", "4", "--merge", "--bf16"), "sft"),
    ],
)
def test_whole_traces_are_learnt_and_adapters_are_merged(
    nano: Installation, evaluated: Any, tmp_path: Path, options: tuple[str, ...], method: str
) -> None:
    out = tmp_path / "trained"
    told = tuned(nano, out, *options)
    assert 0 < told["losses"][method] < 20
    assert not (out / "adapter_config.json").exists()
    before = load_file(WEIGHTS / "model.safetensors")
    with safe_open(out / "model.safetensors", "np") as after:
        assert set(before) == set(after.keys())
        if "--bf16" in options:  # which NumPy can't read
            assert {after.get_slice(name).get_dtype() for name in before} == {"BF16"}
        else:
            changed = (after.get_tensor(name).astype(np.float32) - before[name].astype(np.float32) for name in before)
            assert any(np.any(difference) for difference in changed)


def test_an_adapter_is_trained_by_pairs_and_then_by_labels(nano: Installation, evaluated: Any, tmp_path: Path) -> None:
    """DPO and KTO each put a copy of the adapter beside it, as the reference."""
    methods = ("--lora", "4", "--method", "dpo", "--method", "kto", "--min-margin", "0")
    told = tuned(nano, tmp_path / "both", *methods)
    assert list(told["losses"]) == ["dpo", "kto"]
    assert (tmp_path / "both" / "adapter_config.json").exists()
    assert not (tmp_path / "both" / "ref").exists()


def test_the_training_data_is_the_selected_one(nano: Installation, evaluated: Any, tmp_path: Path) -> None:
    told = tuned(nano, tmp_path / "one", "--where", "type = 'action'", "--where", "verifier:source = 'ran'")
    [[actions]] = nano.sql("select count(*) from sft_examples where type = 'action'")
    [[answers]] = nano.sql("select count(*) from verifier_labels where type = 'action' and source = 'ran'")
    assert told["rows"] == {"sft": actions, "verifier": answers}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--where", "nothing = 1"), 'column "nothing" does not exist'),
        (("--method", "ppo"), "there is no method 'ppo'"),
        (("--lora", "4", "--norms"), "give one of them"),
        (("--merge",), "--merge is for an adapter: give --lora RANK too"),
        (("--load-in-4bit",), "--load-in-4bit is for an adapter: give --lora RANK too"),
        (("--lora", "4", "--load-in-4bit", "--merge"), "leave --load-in-4bit out"),
        (("--launch", "/no/such/python"), "can't be started"),
        (("--launch", "python 'x"), "--launch is no command"),
        (("--method", "kto", "--batch", "1"), "give --batch 2 or more"),
        (("--load", "weavegen-nano"), "serves a model weavegen-nano already"),
        (("--out", "/"), "exists"),
    ],
)
def test_bad_input_gives_one_line_and_leaves_nothing(
    nano: Installation, evaluated: Any, tmp_path: Path, options: Any, says: str
) -> None:
    done = nano.cli("tune", WEIGHTS, "--out", tmp_path / "out", "--where", "job_id > 0", *options)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_same_command_can_be_given_again_after_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> dict[str, int]:
        (tmp_path / "out" / "data").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "collect", interrupted)
    usual = {field.name: field.default for field in dataclasses.fields(tune.Training)}
    with pytest.raises(KeyboardInterrupt):
        tune.tune(model="no-model", to=tmp_path / "out", **usual)
    assert not (tmp_path / "out").exists()


def test_the_traces_of_evaluations_are_left_out(nano: Installation, evaluated: Any, tmp_path: Path) -> None:
    [[traces]] = nano.sql(
        "select string_agg(t.id::text, ',') from traces t join jobs j on j.id = t.job_id where j.name like 'eval %'"
    )
    done = nano.cli("tune", WEIGHTS, "--out", tmp_path / "out", "--where", f"trace_id in ({traces})")
    assert done.returncode == 2, done.stderr
    assert "sft: without the jobs of evaluations: to take them, name job_id in --where" in done.stderr
    assert "no row of the view sft_examples matches" in done.stderr


@pytest.mark.parametrize(
    ("options", "rates"),
    [({}, (2e-5, 5e-7)), ({"lora": 8}, (2e-4, 5e-6)), ({"norms": True}, (2e-4, 5e-6)), ({"rate": 1e-3}, (1e-3, 1e-3))],
)
def test_whole_weights_are_trained_at_a_tenth_of_an_adapters_rate(
    options: dict[str, Any], rates: tuple[float, float]
) -> None:
    usual = {field.name: field.default for field in dataclasses.fields(tune.Training)}
    plan = tune.Training(**(usual | options)).plan("model")
    assert (plan.rates["sft"], plan.rates["dpo"]) == pytest.approx(rates)


GPUS = """
import json, os, sys
from weavegen.training.tune import use_one_gpu

found = []
for environ in json.loads(sys.argv[1]):
    for name in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES"):
        os.environ.pop(name, None)
    os.environ |= environ
    use_one_gpu()
    found.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
json.dump(found, sys.stdout)
"""


def test_without_a_launcher_one_gpu_is_used() -> None:
    """TRL refuses to train one process on several."""
    shown = "CUDA_VISIBLE_DEVICES"
    environs = [{}, {shown: "2,3"}, {shown: ""}, {"LOCAL_RANK": "1", shown: "2,3"}, {"LOCAL_RANK": "1"}]
    command = [PYTHON, "-c", GPUS, json.dumps(environs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["0", "2", "", "2,3", None]


def test_a_model_learns_from_conversations_over_a_chat_api(tmp_path: Path, trl_environ: dict[str, str]) -> None:
    """It reads them in its own chat template. There are no rows of `verifier`: nobody was asked about a message."""
    server = Process(tmp_path, "chat", "--port", "0", "--chat")
    try:
        with installed(**(trl_environ | {"OPENAI_BASE_URL": server.url, "PYTHONPATH": str(ROOT)})) as one:
            one.json("run", "--agent", "react", "--task", "Write a list.", "-n", "3", "--seed", "5")
            told = tuned(one, tmp_path / "out")
            pairs = one.cli("tune", WEIGHTS, "--out", tmp_path / "pairs", "--method", "dpo")
    finally:
        server.kill()
    assert told["rows"]["sft"] >= 3
    assert told["rows"]["verifier"] == 0
    [file] = (tmp_path / "out" / "data" / "sft").rglob("*.parquet")
    template = derive(renderer(WEIGHTS))
    for row in pq.read_table(file).to_pylist():
        assert row["prompt"].startswith(template.first_system)
        assert row["completion"].endswith(template.end)
        assert row["exact_prompt"]
    assert (pairs.returncode, "nothing to export" in pairs.stderr) == (2, True)


CHATML = """
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from weavegen.training.tune import tokens

PROMPT = "<s> user hello </s> <s> assistant"
found = []
for adds in (False, True):
    vocabulary = dict.fromkeys(["?", *PROMPT.split(), "yes"])
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, "?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds:
        words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="?")
    row = {"prompt": PROMPT, "chosen": "yes", "rejected": "yes"}
    ids = tokens(fast, row, 64, "chosen", "rejected")["prompt_ids"]
    found.append(list(ids) == fast.convert_tokens_to_ids(PROMPT.split()))
json.dump(found, sys.stdout)
"""


def test_a_prompt_keeps_the_bos_token_of_each_message() -> None:
    """In ChatML each message begins with the BOS token. Trainers add another one where the tokenizer does."""
    done = subprocess.run([PYTHON, "-c", CHATML], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, True]


LONG = """
import json, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from weavegen.kernel import context
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import Template
from weavegen.trace.blocks import Block, BlockType
from weavegen.trace.render import render_block
from weavegen.training.tune import example

def block(index, type, body):
    return render_block(Block(index=index, type=type, body=body, subagent="main", timestamp=1.5, time_remaining=60.25))

chat = Template(block_open="<s>[INST] ", block_close=" [/INST]")
blocks = [block(0, "genesis", "import world\\n" * 60), block(1, "bootstrap", "# Find the treasure.")]
blocks += [block(index, "action", f"dig({index})\\n" * (index % 7 + 3)) for index in range(2, 20)]
header = "#subagent main\\n#startblock type: action\\n#index 20\\n"
prompt = Prompt(type=BlockType.ACTION, header=header, window=(2, 20))
text = chat.block_open + "".join(blocks) + context.asked(prompt, chat)
words = Tokenizer(models.BPE())
words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
words.train_from_iterator([text], trainers.BpeTrainer(special_tokens=["<s>"], initial_alphabet=alphabet))
fast = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
found = []
for window in (512, 1024, 4096):
    row = example(fast, text, "dig(20)", window)
    read = [id for id, label in zip(row["input_ids"], row["labels"]) if label == -100]
    found.append([len(row["input_ids"]), fast.decode(read)])
json.dump([text, blocks, [len(fast(one)["input_ids"]) for one in blocks], found], sys.stdout)
"""


def test_a_long_prompt_keeps_the_task_and_its_last_blocks_whole() -> None:
    """With any tokenizer, not only with that of nano, which has a token that begins a block."""
    done = subprocess.run([PYTHON, "-c", LONG], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text, blocks, sizes, found = json.loads(done.stdout)
    assert found.pop()[1] == text
    asking = text.partition(blocks[-1])[2]
    for window, (tokens, shown) in zip((512, 1024), found, strict=True):
        kept = [one for one in blocks[2:] if one in shown]
        assert len(kept) >= 2
        assert tokens <= window < tokens + sizes[-1 - len(kept)], "No more is left out than necessary."
        begin = shown.removesuffix("".join(kept) + asking)
        assert begin != shown
        genesis, bootstrap, rest = begin.partition(blocks[1])
        assert (bootstrap, rest) == (blocks[1], "")
        assert text.startswith(genesis)


COMPARED = """
import json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from weavegen.training.plan import TunePlan
from weavegen.training.tune import compared

PROMPT, ENDS = "<s>" + "import os\\n" * 9 + "def acti", ["on_find(): retu", "on_(self): pass\\n#q: Is it so? ", "on"]
model, data = sys.argv[1], Path(sys.argv[2])
table = {
    "dpo": [{"prompt": PROMPT, "chosen": ENDS[0], "rejected": ENDS[1]}] * 4,
    "kto": [{"prompt": PROMPT, "completion": end, "label": end == ENDS[0]} for end in ENDS],
}
words, found = AutoTokenizer.from_pretrained(model), {}
for method, rows in table.items():
    (data / method / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), data / method / "data" / "one.parquet")
    plan = TunePlan(model=model, data=str(data), out=str(data / "out"), batch=2, window=512)
    trainer = compared(method, plan, AutoModelForCausalLM.from_pretrained(model), words, None)
    found[method] = [trainer.train_dataset.to_list(), float(trainer.train().training_loss)]
own = {text: words(text, add_special_tokens=False)["input_ids"] for text in (PROMPT, *ENDS)}
merged = [words(PROMPT + end, add_special_tokens=False)["input_ids"] for end in ENDS[:1]]
json.dump([found, own, [PROMPT, *ENDS], merged], sys.stdout)
"""


def with_tiny_model(program: str, folder: Path, trl_environ: dict[str, str]) -> Any:
    """What a program prints as JSON in its last line. Its arguments: the folder of a tiny model, and one for data."""
    environ, model = trl_environ | {"PYTHONPATH": str(ROOT)}, folder / "model"
    made = [PYTHON, ROOT / "scripts" / "tiny_model.py", "make", model]
    subprocess.run(made, env=environ, capture_output=True, check=True)
    command = [PYTHON, "-c", program, model, folder / "data"]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_pairs_are_trained_on_as_the_tokens_that_the_model_reads_and_samples(
    tmp_path: Path, trl_environ: dict[str, str]
) -> None:
    """No token holds the end of a prompt and the beginning of a completion, and nothing follows a completion."""
    found, own, (prompt, *ends), [merged] = with_tiny_model(COMPARED, tmp_path, trl_environ)
    assert merged != own[prompt] + own[ends[0]], "Do the tokens merge at all?"
    pair = {"prompt_ids": own[prompt], "chosen_ids": own[ends[0]], "rejected_ids": own[ends[1]]}
    assert found["dpo"][0] == [pair] * 4
    singles, _ = found["kto"]
    assert {row["label"]: row["prompt_ids"] for row in singles} == {True: own[prompt], False: own[prompt]}
    assert sorted(row["completion_ids"] for row in singles) == sorted(own[end] for end in ends)
    others = [row["KL_completion_ids"] for row in singles]  # of the other row of its batch
    assert others == [singles[at]["completion_ids"] for at in (1, 0, 2)]
    assert all(math.isfinite(loss) for _, loss in found.values())


AFTERWARDS = """
import json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from weavegen.training import tune
from weavegen.training.plan import TunePlan

model, data, usual = sys.argv[1], Path(sys.argv[2]), tune.options
pair = {"chosen": "_find(): return 1", "rejected": "_self(): pass"}
table = {
    "sft": [{"prompt": "def action", "completion": pair["chosen"]}] * 8,
    "dpo": [{"prompt": "def action"} | pair] * 16,
    "kto": [{"prompt": "def action", "completion": end, "label": end == pair["chosen"]} for end in pair.values()] * 8,
}
for method, rows in table.items():
    (data / method / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), data / method / "data" / "one.parquet")
trainers = {}

def kept(method, make):
    def made(*given):
        trainers[method] = make(*given)
        return trainers[method]
    return made

tune.options = lambda plan, method: usual(plan, method) | {"logging_steps": 1, "warmup_steps": 0}
for method in table:
    tune.TRAINERS[method] = kept(method, tune.TRAINERS[method])
rates = dict.fromkeys(table, 1e-3)
out = {"model": model, "data": str(data), "out": str(data / "out")}
tune.tune(TunePlan(**out, methods=tuple(table), batch=4, window=512, rates=rates, multiple_of=8))
rewards = ("rewards/chosen", "rewards/rejected")
steps = {method: trainer.state.log_history[:3] for method, trainer in trainers.items() if method != "sft"}
found = {method: [[step[name] for name in rewards if name in step] for step in own] for method, own in steps.items()}
json.dump(found, sys.stdout)
"""


def test_each_method_begins_with_what_the_one_before_has_trained(tmp_path: Path, trl_environ: dict[str, str]) -> None:
    """The reference of DPO and KTO is the model that they begin with, so that all rewards are 0 at first."""
    found = with_tiny_model(AFTERWARDS, tmp_path, trl_environ)
    for method in ("dpo", "kto"):
        first, *others = found[method]
        assert first == pytest.approx([0] * len(first), abs=1e-4), found
        assert max(abs(reward) for rewards in others for reward in rewards) > 1e-3, found


WHOLE = """
import io, json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer
from weavegen.errors import UsageError
from weavegen.training import tune
from weavegen.training.plan import TunePlan

model, data, train = sys.argv[1], Path(sys.argv[2]), tune.sft_trainer
words = AutoTokenizer.from_pretrained(model)

def conversation(said, shift=0):
    read, own = (words(text, add_special_tokens=False)["input_ids"] for text in ("What is in the box? " * 3, said))
    read, own = ([(id + shift) % len(words) for id in ids] for ids in (read, own))
    messages = [{"role": "user", "content": "What is in the box?"}, {"role": "assistant", "content": said + "\\n"}]
    return {"tokens": read + own, "masks": [-100] * len(read) + own, "messages": messages}

own = [conversation(f"import box; return box.find({number}), or nothing") for number in range(4)]
foreign = [conversation(f"return the answer of another model {number}", shift=700) for number in range(2)]
texts = [{"text": "import box\\n" * 9}]
tables = {"own": {"trajectories": own + foreign, "text": texts}, "other": {"trajectories": foreign}}
for folder, formats in tables.items():
    for format, rows in formats.items():
        (data / folder / format / "data").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), data / folder / format / "data" / "one.parquet")

def plan(folder, *methods):
    rates = {method: 1e-3 for method in methods}
    given = {"data": str(data / folder), "out": str(data / f"{folder}-out"), "methods": methods, "rates": rates}
    return TunePlan(model=model, window=16, batch=2, **given)

tune.sft_trainer = lambda method, plan, model, words, adapter, examples: examples
usual, sys.stderr = sys.stderr, io.StringIO()
found = {method: tune.whole(method, plan("own", method), None, words, None) for method in ("trajectories", "text")}
said, sys.stderr, tune.sft_trainer = sys.stderr.getvalue(), usual, train
names = ("input_ids", "labels")
found = {method: [[row[name].tolist() for name in names] for row in rows] for method, rows in found.items()}
tune.tune(plan("own", "trajectories", "text"))
losses = json.loads((data / "own-out" / "losses.json").read_text())
try:
    tune.tune(plan("other", "trajectories"))
except UsageError as error:
    refused = str(error)
text = words(texts[0]["text"])["input_ids"]
json.dump([found, [[row["tokens"], row["masks"]] for row in own], text, said, losses, refused], sys.stdout)
"""


def test_whole_conversations_are_learnt_with_their_masks_and_own_tokens(
    tmp_path: Path, trl_environ: dict[str, str]
) -> None:
    """In windows, and without those that another tokenizer made; of texts, all tokens."""
    found, own, text, said, losses, refused = with_tiny_model(WHOLE, tmp_path, trl_environ)
    expected = []
    for ids, masks in own:
        cut = [(ids[at : at + 16], masks[at : at + 16]) for at in range(0, len(ids), 16)]
        expected += [[part, labels] for part, labels in cut if set(labels) != {-100}]
    assert len(expected) < sum(math.ceil(len(ids) / 16) for ids, _ in own), "Are there windows that are only read?"
    assert any(-100 in labels for _, labels in expected)
    assert sorted(found["trajectories"]) == sorted(expected)
    assert "2 conversations are left out" in said
    assert [id for ids, _ in found["text"] for id in ids] == text
    assert all(ids == labels for ids, labels in found["text"])
    assert all(0 < losses[method] < 20 for method in ("trajectories", "text"))
    assert "has nothing to train on" in refused


SHARDED = """
import sys
from pathlib import Path
import msgspec
from accelerate import state
from accelerate.utils import DistributedType
from weavegen.errors import UsageError
from weavegen.training import tune
from weavegen.training.plan import TunePlan

usual = state.AcceleratorState.__init__

def sharded(self, *given, fsdp_plugin=None, **named):
    # accelerate uses FSDP on GPUs only; PyTorch has it on the CPU, too.
    usual(self, *given, fsdp_plugin=fsdp_plugin, **named)
    if fsdp_plugin is not None:
        self.fsdp_plugin, self.distributed_type = fsdp_plugin, DistributedType.FSDP
        state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP

state.AcceleratorState.__init__ = sharded
*plans, several = [msgspec.json.decode(Path(name).read_bytes(), type=TunePlan) for name in sys.argv[1:]]
for plan in plans:
    tune.tune(plan)
try:
    tune.tune(several)
except UsageError as error:
    print(error)
"""


def test_two_processes_with_fsdp_write_whole_weights(tmp_path: Path, trl_environ: dict[str, str]) -> None:
    """Each has half of every weight. The folder is written by one of them, from the halves of both."""
    environ, model = trl_environ | {"PYTHONPATH": str(ROOT)}, tmp_path / "model"
    made = [PYTHON, ROOT / "scripts" / "tiny_model.py", "make", model]
    subprocess.run(made, env=environ, capture_output=True, check=True)
    (tmp_path / "text" / "data").mkdir(parents=True)
    pq.write_table(pa.table({"text": ["import box\n" * 20] * 8}), tmp_path / "text" / "data" / "one.parquet")
    kinds: dict[str, dict[str, Any]] = {
        "whole": {}, "lora": {"lora": 4}, "merged": {"lora": 4, "merge": True}, "several": {"methods": ("text", "sft")},
    }  # fmt: skip
    files = []
    for name, options in kinds.items():
        folders = {"model": str(model), "data": str(tmp_path), "out": str(tmp_path / name)}
        given = {**folders, "rates": {"text": 1e-2}, "methods": ("text",), "batch": 2, "window": 64, **options}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_bytes(msgspec.json.encode(given))
    environ |= {
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "OMP_NUM_THREADS": "1",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_ACTIVATION_CHECKPOINTING": "true",
    }  # fmt: skip
    command = [PYTHON, "-c", SHARDED, *files]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for rank in ("0", "1"):
            own = environ | {"RANK": rank, "LOCAL_RANK": rank}
            with (tmp_path / rank).open("w") as log:
                running.append(subprocess.Popen(command, cwd=tmp_path, env=own, stdout=log, stderr=log))
        for number, process in enumerate(running):
            assert process.wait(500) == 0, (tmp_path / str(number)).read_text()[-3000:]
            assert "FSDP divides the weights for one trainer" in (tmp_path / str(number)).read_text()
    finally:
        for process in running:
            process.kill()
    before = load_file(model / "model.safetensors")
    for name in ("whole", "merged"):
        after = load_file(tmp_path / name / "model.safetensors")
        assert {key: value.shape for key, value in after.items()} == {key: value.shape for key, value in before.items()}
        assert all(np.isfinite(value).all() for value in after.values())
        for key in (key for key in after if "proj" in key):
            changed = after[key] != before[key]
            assert all(half.any() for half in np.array_split(changed, 2)), f"{name}: a half of {key} is not trained"
    adapter = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    assert {value.shape for key, value in adapter.items() if "q_proj.lora_B" in key} == {(128, 4)}
    assert all(np.isfinite(value).all() and value.any() for value in adapter.values())
    for name in ("whole", "merged", "lora"):
        assert json.loads((tmp_path / name / "losses.json").read_text())["text"] > 0
        assert (tmp_path / name / "tokenizer.json").exists()


BALANCED = """
import json, sys
from collections import Counter
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from weavegen.training.plan import TunePlan
from weavegen.training import tune
from weavegen.training.tune import asked

RAN = "Does this block run without errors?"
table = [{"question": RAN, "type": "action", "label": n % 5 > 0} for n in range(50)]
table += [{"question": RAN, "type": "evaluation", "label": True}] * 20
table += [{"question": "Did it win?", "type": "action", "label": n < 3} for n in range(4)]
table += [{"question": "Is it only ever true?", "type": "action", "label": True}] * 9
table = [{**row, "source": "ran"} for row in table]
table += [{"question": "Is it good?", "type": "orientation", "label": n % 4 > 0, "source": "drawn"} for n in range(200)]
folder = Path(sys.argv[1], "verifier", "data")
folder.mkdir(parents=True)
pq.write_table(pa.Table.from_pylist(table), folder / "one.parquet")
found, replayed = {}, {}
for name, options in {
    "as they are": {"replay": 0}, "balanced": {"replay": 0, "balance": True}, "default": {}, "half": {"replay": 0.5}
}.items():
    rows = [table[number] for number in tune.labels(TunePlan(model="", data=sys.argv[1], out="", **options))]
    counts = Counter((row["question"], row["label"]) for row in rows if row["source"] == "ran")
    replayed[name] = sum(row["source"] == "drawn" for row in rows)
    found[name] = sorted([*key, count] for key, count in counts.items())
few = tune.labels(TunePlan(model="", data=sys.argv[1], out="", balance=True, most=7))
kinds = {(r["question"], r["type"]): asked(r) for r in table}
json.dump([found, replayed, len(few), [[*key, value] for key, value in kinds.items()]], sys.stdout)
"""


def test_labels_are_balanced_replayed_and_asked_as_the_evaluator_asks(tmp_path: Path) -> None:
    done = subprocess.run([PYTHON, "-c", BALANCED, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, replayed, few, kinds = json.loads(done.stdout)
    ran, won, always = "Does this block run without errors?", "Did it win?", "Is it only ever true?"
    assert found["as they are"] == found["default"] == found["half"]
    assert found["default"] == [[won, False, 1], [won, True, 3], [ran, False, 10], [ran, True, 60], [always, True, 9]]
    assert found["balanced"] == [[won, False, 1], [won, True, 1], [ran, False, 10], [ran, True, 10]]
    assert replayed == {"as they are": 0, "balanced": 0, "default": 83, "half": 42}
    assert few == 7
    assert kinds == [
        [ran, "action", [ran, WILL_RUN]],
        [ran, "evaluation", [ran]],
        [won, "action", [won]],
        [always, "action", [always]],
        ["Is it good?", "orientation", ["Is it good?"]],
    ]


LARGE = """
import json, resource, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer
from weavegen.training.plan import TunePlan
from weavegen.training import tune

ROWS, GROUP, data, model = 200_000, 4_000, Path(sys.argv[1]), sys.argv[2]
text = pa.array(["import world\\n" * 1000] * GROUP)
columns = {
    "sft": {"prompt": text, "completion": text},
    "verifier": {
        "context": text,
        "question": pa.array(["Is it?"] * GROUP),
        "type": pa.array(["action"] * GROUP),
        "label": pa.array([True] * GROUP),
        "source": pa.array(["ran"] * GROUP),
    },
}
for name, group in columns.items():
    (data / name / "data").mkdir(parents=True)
    group = pa.table(group | {"number": pa.array(range(GROUP))})
    with pq.ParquetWriter(data / name / "data" / "one.parquet", group.schema) as writer:
        for _ in range(ROWS // GROUP):
            writer.write_table(group)
plan, words = TunePlan(model="", data=str(data), out="", window=512, most=10), AutoTokenizer.from_pretrained(model)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tune.sft_trainer = lambda method, plan, model, words, adapter, examples: examples
found = len(tune.supervised(plan, None, words, None))
numbers = [[row["number"] for row in tune.rows(plan, name, ["number"])] for name in columns]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
expected = [number % GROUP for number in tune.shuffled(plan, "sft")[:10]]
json.dump([found, numbers == [expected] * 2, (after - before) / 1024], sys.stdout)
"""


def test_memory_holds_the_rows_that_are_drawn_and_not_the_export(tmp_path: Path, trl_environ: dict[str, str]) -> None:
    """Each of the exports has 200,000 rows of 13,000 characters."""
    command = [PYTHON, "-c", LARGE, tmp_path / "data", WEIGHTS]
    environ = trl_environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    examples, right, megabytes = json.loads(done.stdout.splitlines()[-1])
    assert (examples, right) == (20, True)
    assert megabytes < 400
