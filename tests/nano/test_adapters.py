"""Adapters that a server loads while it is running, as vLLM does with LoRA."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.nano_model import make, make_adapter
from tests.support.nano_server import likelihood, serving
from tests.support.ports import free_port
from tests.support.waiting import until
from weavegen.errors import NotFound, Unfit, UsageError
from weavegen.pool import adapters, metrics
from weavegen.pool.http import Http
from weavegen.pool.served import list_models
from weavegen_nano.llama import Llama, with_adapter


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(tmp_path_factory.mktemp("adapters") / "round-1", folder)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


def test_an_adapter_is_the_sum_of_its_parts(folder: Path, adapter: Path) -> None:
    before = load_file(folder / "model.safetensors")
    parts = load_file(adapter / "adapter_model.safetensors")
    after = with_adapter(before, adapter)
    changed = [name for name in before if not np.array_equal(before[name], after[name])]
    assert len(changed) == 2 * 3
    for name in changed:
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        difference = 2.0 * parts[f"{stem}.lora_B.weight"] @ parts[f"{stem}.lora_A.weight"]
        assert np.allclose(after[name] - before[name], difference, atol=1e-5)


def test_an_adapter_is_loaded_served_beside_its_model_and_unloaded(url: str, folder: Path, adapter: Path) -> None:
    servers = {url: "EMPTY"}
    own = likelihood(url, None)
    adapters.load(servers, "round-1", adapter)
    adapters.load(servers, "round-1", adapter)  # already loaded: nothing happens
    models = list_models(url, Http("EMPTY", 10.0))
    assert [(model.id, model.parent) for model in models] == [(folder.name, None), ("round-1", folder.name)]
    assert likelihood(url, None) == own, "Is the model itself used if no name is given?"
    assert likelihood(url, "round-1") != own
    assert adapters.unload(servers, "round-1") == 1
    assert adapters.unload(servers, "round-1") == 0
    with pytest.raises(Unfit, match="has no model 'round-1'"):
        likelihood(url, "round-1")


def test_unfinished_requests_of_an_adapter_that_is_unloaded_are_answered(url: str, adapter: Path) -> None:
    adapters.load({url: "EMPTY"}, "gone", adapter)
    body = {"model": "gone", "prompt": "x", "n": 200, "max_tokens": 10_000}

    def ask() -> None:
        with pytest.raises(NotFound, match="The model `gone` does not exist"):
            Http("EMPTY", 60.0).send(f"{url}/completions", body)

    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask) for _ in range(2)]  # one of them waits for the other
        until(lambda: metrics.read(url, Http("EMPTY", 10.0)).running, "nothing is sampled")
        assert adapters.unload({url: "EMPTY"}, "gone") == 1
        for one in asked:
            one.result(60)


def test_servers_that_fail_are_left_out_when_others_load(
    url: str, adapter: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    assert adapters.load({away: "EMPTY", url: "EMPTY"}, "some", adapter) == 1
    assert f"no connection to {away}" in caplog.text
    with pytest.raises(UsageError, match="no connection to"):
        adapters.load({away: "EMPTY"}, "some", adapter)
    # The others unload it; but the one that failed may still have it, and would serve other weights under its name.
    with pytest.raises(UsageError, match="no connection to"):
        adapters.unload({away: "EMPTY", url: "EMPTY"}, "some")
    assert adapters.unload({url: "EMPTY"}, "some") == 0


def test_complete_weights_are_served_as_by_a_server_of_their_own(url: str, tmp_path: Path) -> None:
    other = make(tmp_path / "other", seed=5)
    adapters.load({url: "EMPTY"}, "other", other)
    with serving(other) as alone:
        assert likelihood(url, "other") == likelihood(alone, None)
    adapters.unload({url: "EMPTY"}, "other")


def test_adapters_that_do_not_fit_are_refused_in_one_line(
    url: str, folder: Path, adapter: Path, tmp_path: Path
) -> None:
    wrong = {
        "missing": (tmp_path / "missing", "can't be read|No such file"),
        "dora": (make_adapter(tmp_path / "dora", folder, use_dora=True), "only plain LoRA"),
        "wide": (make(tmp_path / "wide", hidden_size=48), "its shape differs from that of"),
    }
    strange = make(tmp_path / "words")
    text = (strange / "tokenizer.json").read_text()
    (strange / "tokenizer.json").write_text(text.replace('"content":"</s>"', '"content":"</z>"', 1) + "\n")
    wrong["words"] = (strange, "its tokenizer differs from that of")
    foreign = tmp_path / "foreign"
    shutil.copytree(adapter, foreign)
    arrays = load_file(adapter / "adapter_model.safetensors")
    save_file({name: array[..., :5] for name, array in arrays.items()}, str(foreign / "adapter_model.safetensors"))
    wrong["foreign"] = (foreign, "is not in the model, or has another size")
    for name, (place, why) in wrong.items():
        with pytest.raises(UsageError, match=why) as caught:
            adapters.load({url: "EMPTY"}, name, place)
        assert "\n" not in str(caught.value)
    assert len(list_models(url, Http("EMPTY", 10.0))) == 1


def test_an_adapter_alone_is_not_a_model(adapter: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        Llama(adapter)
