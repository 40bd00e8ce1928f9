"""Builds of images: several steps that need one at the same time, full disks, and builds that are killed or fail."""

import contextlib
import json
import os
import shutil
import tarfile
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.harbor.registry import LOGIN, digest, log_in, serving, small_image
from tests.harbor.world import BASE, FILES, TOML, World, write_task
from tests.support.waiting import until
from weavegen import folders
from weavegen.cli.app import app
from weavegen.config import Config, load
from weavegen.errors import ImageFailure, Unserved, UsageError
from weavegen.harbor import folder
from weavegen.harbor.verifier import image_of, limits_of, root_of, task_files
from weavegen.kernel.harbor import HarborTask, Phase
from weavegen.sandbox import images
from weavegen.sandbox.command import CommandBox
from weavegen.sandbox.images import Image

SLOW = FILES["environment/Dockerfile"] + "RUN sleep 10\n"


def prepared(world: World, place: Path, dockerfile: str) -> tuple[HarborTask, Path]:
    write_task(place, {"environment/Dockerfile": dockerfile})
    return folder.read_task(place), task_files(world.config, place.name, lambda: folder.pack(place))


def is_building(world: World) -> bool:
    """Whether a build has begun. Its draft is there before it may run."""
    [slot] = images.slots(world.config)
    try:
        with folders.locked(slot, 0):
            return False
    except folders.Locked:
        return True


def test_a_step_does_not_wait_for_images_that_others_make(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BUILDS", 1)
    slow, slow_files = prepared(world, tmp_path / "slow", SLOW)
    other, other_files = prepared(world, tmp_path / "other", FILES["environment/Dockerfile"] + "RUN true\n")
    builder = threading.Thread(target=image_of, args=(world.config, slow, slow_files))
    builder.start()
    until(lambda: is_building(world), "the build")
    for task, files in ((slow, slow_files), (other, other_files)):
        with pytest.raises(Unserved, match="images are being made"):
            image_of(world.config, task, files, set)
    assert builder.is_alive()
    assert image_of(world.config, other, other_files).name == "other"  # waits for the first one
    builder.join()
    assert image_of(world.config, slow, slow_files, set).name == "slow"


def test_a_full_disk_is_no_failure_of_a_task(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that nobody needs are removed; if that is not enough, the step waits."""
    kept, kept_files = prepared(world, tmp_path / "kept", FILES["environment/Dockerfile"] + "RUN : kept\n")
    old, old_files = prepared(world, tmp_path / "old", FILES["environment/Dockerfile"] + "RUN : old\n")
    new, new_files = prepared(world, tmp_path / "new", FILES["environment/Dockerfile"] + "RUN : new\n")
    for task, files in ((kept, kept_files), (old, old_files)):
        image_of(world.config, task, files)
    monkeypatch.setattr(images, "MIN_FREE_BYTES", 2**60)
    with pytest.raises(Unserved, match="are free for images"):
        image_of(world.config, new, new_files, lambda: {"kept"})
    assert [image.name for image in images.made(world.config)] == ["kept"]
    assert image_of(world.config, kept, kept_files, set).name == "kept"
    full = FILES["environment/Dockerfile"] + "RUN echo 'tar: write: No space left on device' >&2; exit 1\n"
    monkeypatch.setattr(images, "MIN_FREE_BYTES", 0)
    with pytest.raises(Unserved, match="No space left"):
        image_of(world.config, *prepared(world, tmp_path / "full", full))


def test_what_a_killed_build_leaves_is_removed(world: World, tmp_path: Path) -> None:
    """Its container has all that its instructions wrote: gigabytes, where packages were being installed."""
    task, files = prepared(world, tmp_path / "endless", SLOW.replace("10", "11"))  # no layer of it is in the cache
    with pytest.raises(ImageFailure, match="longer than 5 seconds"):
        image_of(world.config, msgspec.structs.replace(task, build_seconds=5), files)
    place = images.store(world.config)
    assert images.stored(place / "storage", "containers")
    assert any((place / "tmp").iterdir())
    images.prune(world.config, lambda: {image.name for image in images.made(world.config)})
    assert not images.stored(place / "storage", "containers")
    assert not any((place / "tmp").iterdir())
    assert image_of(world.config, task, files).name == "endless"


def live_box(world: World, task: HarborTask, image: Image) -> CommandBox:
    changes = world.config.workspaces / f"live-{task.name}" / "changes"
    root = root_of(world.config, task, image, Phase(seconds=0), changes)
    return CommandBox(world.config, root, limits_of(task), changes.parent.name)


def test_tasks_with_equal_files_do_not_share_the_fate_of_their_images(world: World, tmp_path: Path) -> None:
    dockerfile = FILES["environment/Dockerfile"] + "RUN : equal\n"
    both = [prepared(world, tmp_path / name, dockerfile) for name in ("first", "second")]
    first, second = (image_of(world.config, task, files) for task, files in both)
    assert first.layers == second.layers  # the second one was made from the cache
    images.prune(world.config, lambda: {"second"})
    assert [image.name for image in images.made(world.config)] == ["second"]
    live_box(world, both[1][0], second).kill()
    assert image_of(world.config, *both[1]) == second


def test_an_image_under_a_live_box_stays(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of `harbor run` have no trace. Which traces are open is asked when no more images are made."""
    monkeypatch.setattr(images, "MAX_BUILDS", 1)
    task, files = prepared(world, tmp_path / "alive", FILES["environment/Dockerfile"] + "RUN : alive\n")
    image = image_of(world.config, task, files)
    busy = []

    def in_use() -> set[str]:
        busy.append(is_building(world))
        return set()

    box = live_box(world, task, image)
    try:
        images.prune(world.config, in_use)
        assert image in images.made(world.config)
    finally:
        box.kill()
    images.prune(world.config, in_use)
    assert image not in images.made(world.config)
    assert busy == [True, True]


def test_what_no_image_needs_is_removed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulled images, layers of failed builds, and files of tasks, all without an image of a task above them."""
    config, storage = world.config, images.store(world.config) / "storage"
    monkeypatch.setattr(images, "MAX_IDS", 2)
    images.prune(config, set)
    bases = len(images.stored(storage, "layers"))
    needed, needed_files = prepared(world, tmp_path / "needed", f"FROM {BASE}\nRUN : > /shared\nRUN : > /needed\n")
    image = image_of(config, needed, needed_files)
    layers = len(images.stored(storage, "layers"))
    fails = prepared(world, tmp_path / "fails", f"FROM {BASE}\nRUN : > /shared\nRUN : > /left\nRUN false\n")
    with pytest.raises(ImageFailure):
        image_of(config, *fails)
    with serving(config) as address:
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(log_in(address, tmp_path / "logins")))
        image_of(config, *prepared(world, tmp_path / "pulls", f"FROM {address}/small:1\nCOPY data /\n"))
    for name in ("context-old", "context-new", "e" * 64, "f" * 64):
        (config.home / "harbor" / name).mkdir()
        if name != "context-new":
            os.utime(config.home / "harbor" / name, (0, 0))
    (config.home / "harbor" / "context-waits").mkdir()
    os.utime(config.home / "harbor" / "context-waits", (0, 0))
    waits = task_files(config, "context-waits", bytes)  # a build that waits asks for its files again
    images.prune(config, lambda: {"needed", "e" * 64})
    assert waits.exists()
    assert len(images.stored(storage, "layers")) == layers > bases
    assert not any("small" in name for entry in images.stored(storage, "images") for name in entry.get("names") or ())
    left = [
        name for name in ("context-old", "context-new", "e" * 64, "f" * 64) if (config.home / "harbor" / name).exists()
    ]
    assert left == ["context-new", "e" * 64]
    live_box(world, needed, image).kill()
    images.prune(config, set)
    assert len(images.stored(storage, "layers")) == bases


def test_an_image_stays_the_same_when_its_base_is_pulled(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(world.config) as address:
        task, files = prepared(world, tmp_path / "pulled", f"FROM {address}/small:1\nCOPY data/ /\n")
        with pytest.raises(ImageFailure, match=r"unauthorized|authentication required"):
            image_of(world.config, task, files)
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(log_in(address, tmp_path / "logins")))
        assert image_of(world.config, task, files) == image_of(world.config, task, files)
    assert [image.name for image in images.made(world.config)].count("pulled") == 1


def test_a_build_does_not_see_the_login_of_the_registry(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does an instruction that leaves the build's root, as root with CAP_SYS_CHROOT can."""
    leave = """
import os
os.mkdir("/inner")
top = os.open("/", os.O_RDONLY)
os.chroot("/inner")
os.fchdir(top)
for _ in range(50):
    os.chdir("..")
os.chroot(".")
assert os.path.isdir("/mnt/store/storage")
places = [*("/mnt/" + name for name in os.listdir("/mnt")), "/proc/1/root/mnt/logins", "/proc/1/environ"]
for number in filter(str.isdigit, os.listdir("/proc")):
    places += [f"/proc/{number}/fd/{one}" for one in range(20) if number != str(os.getpid())]
for place in filter(os.path.isfile, places):  # a pipe would be read for ever
    try:
        with open(place, "rb") as file:
            assert LOGIN not in file.read(100_000), place
    except PermissionError:
        pass
""".replace("LOGIN", repr(LOGIN.encode()))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(log_in("registry.example", tmp_path / "logins")))
    search = f"! grep -rsq {LOGIN} /mnt /tmp /run /root /home && [ -z $REGISTRY_AUTH_FILE ]"
    write_task(tmp_path / "curious", {"environment/data/leave.py": leave})
    dockerfile = FILES["environment/Dockerfile"] + f"RUN {search}\nRUN python3 data/leave.py\n"
    assert image_of(world.config, *prepared(world, tmp_path / "curious", dockerfile)).size > 0
    monkeypatch.setenv("REGISTRY_AUTH_FILE", "/nowhere")
    with pytest.raises(UsageError, match="/nowhere can't be read: correct or unset REGISTRY_AUTH_FILE"):
        images.require_builder()


@pytest.mark.parametrize("status", [429, 503])
def test_a_registry_that_is_overloaded_is_no_failure_of_a_task(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with serving(world.config, status) as address:
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(log_in(address, tmp_path / "logins")))
        with pytest.raises(Unserved, match=address):
            image_of(world.config, *prepared(world, tmp_path / f"waits-{status}", f"FROM {address}/small:1\n"))


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("Error: toomanyrequests: You have reached your pull rate limit. You may increase the limit", True),
        ('Error: pinging container registry docker.io: Get "https://x/v2/": net/http: TLS handshake timeout', True),
        ("Error: reading blob sha256:1: received unexpected HTTP status: 502 Bad Gateway", True),
        ("Error: invalid status code from registry 503 (Service Unavailable)", True),
        ('Error: reading manifest 1 in x/y: StatusCode: 429, {"schemaVersion": 2, "mediaType": "appl', True),
        ("Error: dial tcp: lookup quay.io: Temporary failure in name resolution", True),
        ("Error: read tcp 10.0.0.1:4->1.1.1.1:443: read: connection reset by peer", True),
        ("Error: dial tcp: lookup quay.example on 10.0.0.1:53: no such host", False),
        ('Error: building at STEP "RUN curl x || echo timeout": while running runtime: exit status 1', False),
        ("Error: Get https://x/v2/: context deadline exceeded (Client.Timeout exceeded while awaiting headers)", True),
        ("Error: x/timeout-toomanyrequests:1: requested access to the resource is denied", False),
        ('Error: building at STEP "COPY timeout.py /x": copier: stat: "/i/o timeout.py": no such file', False),
        ("Error: reading manifest 1 in x: manifest unknown; Error: it took longer than 5 seconds", False),
    ],
)
def test_failures_that_pass(line: str, passes: bool) -> None:
    assert bool(images.PASSING.search(images.reason(f"STEP 1/2: FROM x\nerror: connection reset\n{line}\n"))) == passes


def test_a_build_may_print_without_end(world: World, tmp_path: Path) -> None:
    """The worker keeps the last words only."""
    dockerfile = FILES["environment/Dockerfile"] + "RUN yes | head -c 100000000; echo error: last words; false\n"
    task = prepared(world, tmp_path / "prints", dockerfile)
    tracemalloc.start()
    try:
        with pytest.raises(ImageFailure, match="last words"):
            image_of(world.config, *task)
        assert tracemalloc.get_traced_memory()[1] < 90_000_000
    finally:
        tracemalloc.stop()


def test_another_added_base_makes_another_image(world: World, tmp_path: Path) -> None:
    """Also where a Dockerfile puts the base's name together, or only copies from it."""
    (root := tmp_path / "root" / "bin").mkdir(parents=True)
    dockerfiles = {"arg": "ARG V=1\nFROM weavegen.test/added:${V}\n", "copy": "FROM scratch\nCOPY --from=added / /\n"}
    tasks = {name: prepared(world, tmp_path / name, text) for name, text in dockerfiles.items()}
    other = prepared(world, tmp_path / "other", "FROM scratch\nCOPY data /\n")
    found = []
    for content in ("one", "two"):
        (root / "file").write_text(content)
        (archive := tmp_path / f"{content}.tar").write_bytes(b"")
        with tarfile.open(archive, "w") as packed:
            packed.add(root.parent, arcname=".")
        for name in ("weavegen.test/added:1", "added"):
            images.add_base(world.config, name, archive)
        found.append([image_of(world.config, *task) for task in (*tasks.values(), other)])
    (arg, copy, same), (new_arg, new_copy, new_same) = found
    assert arg.identity != new_arg.identity
    assert copy.identity != new_copy.identity
    assert same == new_same


def test_base_of_an_oci_folder(world: World, tmp_path: Path) -> None:
    """With the small image of the registry."""
    (blobs := tmp_path / "oci" / "blobs" / "sha256").mkdir(parents=True)

    def described(data: bytes, kind: str) -> dict[str, object]:
        """Put a part into the folder."""
        (blobs / digest(data).removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "size": len(data), "digest": digest(data)}

    settings, layer = (data for name, data in small_image().items() if name.startswith("sha256:"))
    parts = {"config": described(settings, "config.v1+json"), "layers": [described(layer, "layer.v1.tar")]}
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = described(json.dumps({"schemaVersion": 2, "mediaType": kind, **parts}).encode(), "manifest.v1+json")
    (tmp_path / "oci" / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (tmp_path / "oci" / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    images.add_base(world.config, "weavegen.test/oci:1", tmp_path / "oci")
    task, files = prepared(world, tmp_path / "on-oci", "FROM weavegen.test/oci:1\nCOPY data/ /data/\n")
    layers = [
        images.layer_folder(world.config) / name for name in image_of(world.config, task, files).layers.split(":")
    ]
    assert {path.name for layer in layers for path in layer.iterdir()} == {"pulled.txt", "data"}


@pytest.mark.parametrize("packed", [True, False])
def test_a_base_that_is_no_root_file_system_is_refused(world: World, tmp_path: Path, packed: bool) -> None:
    """Such as the archive of `docker save`."""
    (root := tmp_path / "saved").mkdir()
    for name in ("manifest.json", "repositories"):
        (root / name).write_text("{}")
    with tarfile.open(archive := tmp_path / "saved.tar", "w") as opened:
        opened.add(root, arcname=".")
    place = archive if packed else root
    with pytest.raises(UsageError, match=f"{place} is not a root file system, as it has neither usr nor bin"):
        images.add_base(world.config, "weavegen.test/saved:1", place)
    assert "weavegen.test/saved:1" not in images.added(world.config)


def test_a_refused_task_stops_no_builds_of_others(world: World, tmp_path: Path) -> None:
    write_task(tmp_path / "fine")
    write_task(tmp_path / "refused", {"environment/docker-compose.yaml": "services: {}\n"})
    words = ["images", "build", str(tmp_path), "--json"]
    done = CliRunner(env={"WEAVEGEN_HOME": str(world.config.home)}).invoke(app, words)
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert list(result["made"]) == ["fine"]
    assert result["failed"]["refused"].startswith("the task asks for several containers")


def test_a_build_is_as_docker_does_it(world: World, tmp_path: Path) -> None:
    """The shell is that of SHELL, and what an instruction leaves running ends with the build."""
    lines = [
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "RUN [[ a == a ]]",
        "RUN setsid sleep 4711 > /dev/null 2>&1 &",
    ]
    dockerfile = "\n".join([FILES["environment/Dockerfile"], *lines, ""])
    assert image_of(world.config, *prepared(world, tmp_path / "shell", dockerfile)).size > 0
    commands = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline") if place.exists()]
    assert b"sleep\x004711\0" not in commands


def test_command_lines_hold_no_secrets(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the host can read them: neither a build nor a box puts variables there."""
    secret = "sk-not-for-everybody"
    monkeypatch.setenv("JUDGE_KEY", secret)
    changed = {
        "task.toml": TOML + "[verifier.env]\nKEY = '${JUDGE_KEY}'\n",
        "environment/Dockerfile": FILES["environment/Dockerfile"] + "RUN sleep 0.5\n",
        "tests/test.sh": f"#!/bin/sh\nsleep 0.5\n[ $KEY = {secret} ] && echo 1 > /logs/verifier/reward.txt\n",
    }
    place, commands = write_task(tmp_path / "secret", changed), b""
    with ThreadPoolExecutor() as pool:
        verified = pool.submit(lambda: world.trial(place).verify())
        while not verified.done():
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    commands += file.read_bytes()
    assert verified.result().rewards == {"reward": 1.0}
    assert b"sleep" in commands
    assert b"bwrap" in commands
    assert secret.encode() not in commands


def test_short_names_are_those_of_docker(world: World, tmp_path: Path) -> None:
    with pytest.raises(ImageFailure) as raised:
        image_of(world.config, *prepared(world, tmp_path / "short", "FROM no-such-weavegen-image:0\n"))
    assert "registry-1.docker.io" in str(raised.value)


def test_podman_makes_images_where_there_is_no_buildah(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda program: None if program == "buildah" else which(program))
    assert images.require_builder() == "podman"
    (home := tmp_path / "home").mkdir()
    home.chmod(0o711)
    tmp_path.chmod(0o711)
    alone = World(home)
    images.add_base(alone.config, BASE, base)
    task, files = prepared(alone, tmp_path / "task", FILES["environment/Dockerfile"])
    assert image_of(alone.config, task, files).size > 0
    with pytest.raises(ImageFailure):
        image_of(alone.config, *prepared(alone, tmp_path / "fails", f"FROM {BASE}\nRUN : > /left\nRUN false\n"))
    assert images.prune(alone.config, set)[0] == 1
    assert len(images.stored(images.store(alone.config) / "storage", "layers")) == 1
    alone.end()


def test_where_there_are_no_images_nothing_is_removed(config: Config) -> None:
    assert images.prune(config, set) == (0, 0)


def test_a_folder_that_tar_can_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "bin").mkdir(parents=True)
    lines = ("tar: ./etc/shadow: Cannot open: Permission denied", "tar: Exiting with failure status")
    (tmp_path / "tar").write_text("\n".join(["#!/bin/sh", *(f"echo '{line}' >&2" for line in lines), "exit 2\n"]))
    (tmp_path / "tar").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=r"can't be packed \(tar: ./etc/shadow: Cannot open: Permission denied\)"):
        images.import_base(load({"WEAVEGEN_HOME": str(tmp_path)}), "base", tmp_path / "root")


def test_a_failed_build_tells_its_cause() -> None:
    """Messages of buildah that have hundreds of characters before the cause."""
    step = "STEP 6/9: RUN pip3 install " + "torch " * 90
    step_of_commit = "{Env:[" + "PATH=/bin " * 60 + "]}"
    commit = f"Error: committing container for step {step_of_commit}: storing layer: io: read/write on closed pipe"
    said = images.reason(f"{step}\nwriting blob: write /var/tmp/storage1/1: no space left on device\n{commit}\n")
    assert said.endswith("; writing blob: write /var/tmp/storage1/1: no space left on device")
    assert len(said) < 300
    said = images.reason(f"{step}\n{commit}\n")
    assert said.endswith("storing layer: io: read/write on closed pipe")
    assert len(said) < 500
