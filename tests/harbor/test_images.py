"""Images that several need at the same time."""

import threading
from pathlib import Path

import pytest

from tests.harbor.world import FILES, World, write_task
from tests.support.waiting import until
from weavegen.errors import Unserved
from weavegen.harbor import folder
from weavegen.harbor.verifier import image_of, task_files
from weavegen.kernel.harbor import HarborTask
from weavegen.sandbox import images

SLOW = FILES["environment/Dockerfile"] + "RUN sleep 3\n"


def prepared(world: World, place: Path, dockerfile: str) -> tuple[HarborTask, Path]:
    write_task(place, {"environment/Dockerfile": dockerfile})
    return folder.read_task(place), task_files(world.config, place.name, lambda: folder.pack(place))


def test_a_step_does_not_wait_for_images_that_others_make(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BUILDS", 1)
    slow, slow_files = prepared(world, tmp_path / "slow", SLOW)
    other, other_files = prepared(world, tmp_path / "other", FILES["environment/Dockerfile"] + "RUN true\n")
    builder = threading.Thread(target=image_of, args=(world.config, slow, slow_files))
    builder.start()
    until(lambda: list((world.config.home / "images" / "made").glob(".draft-*")), "the build")
    for task, files in ((slow, slow_files), (other, other_files)):
        with pytest.raises(Unserved, match="images are being made"):
            image_of(world.config, task, files, wait=False)
    assert builder.is_alive()
    assert image_of(world.config, other, other_files).name == "other"  # waits for the first one
    builder.join()
    assert image_of(world.config, slow, slow_files, wait=False).name == "slow"
