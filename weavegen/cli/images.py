"""The images commands: build the root file systems of Harbor tasks in advance, list and remove them."""

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import Result, app, command, progress_bar, reading
from weavegen.config import Config
from weavegen.errors import UsageError, WeavegenError

images = typer.Typer(no_args_is_help=True, help="Manage the images that Harbor tasks run in (docs/harbor.md).")
app.add_typer(images, name="images")

Base = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="NAME=FOLDER",
        help="What `FROM NAME` in a Dockerfile stands for: a root file system as a folder or a tar archive, or an OCI "
        "folder; repeatable.",
    ),
]
Timeouts = Annotated[float, typer.Option(min=0.01, max=1000, help="Multiply time limits of Harbor tasks and builds.")]


@command("list", group=images)
def list_images() -> Result:
    """List the images of this host. Images share layers, so they need less disk space than the sum of their sizes.

    Example: weavegen images list
    """
    from weavegen.sandbox.images import disk, made

    config = configuration.load()
    rows = [
        {"name": one.name, "image": one.digest[:12], "layers": one.layers.count(":") + 1, "bytes": one.size,
         "seconds": round(one.seconds, 1)}
        for one in made(config)
    ]  # fmt: skip
    used = disk(config) if rows else 0
    shown: list[RenderableType] = [display.table(rows), f"{len(rows)} images, {used / 1e9:.2f} GB on the disk\n"]
    return Result({"images": rows, "disk_bytes": used}, shown)


@command(group=images)
def build(
    folders: Annotated[list[str], typer.Argument(help="Harbor tasks, or folders of such tasks.")],
    image: Base = None,
    timeout_multiplier: Timeouts = 1.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Concurrent builds, at most one per core, 8 in all.")] = None,
) -> Result:
    """Build the images of Harbor tasks in advance. The exit code is 1 if a task is refused or a build fails.

    Otherwise the first trace of a task builds its image.

    Example: weavegen images build tasks/
    """
    from weavegen.harbor.folder import pack, read_task, stretched, task_folders
    from weavegen.harbor.verifier import image_of, task_files
    from weavegen.sandbox.images import require_builder

    config = configuration.load()
    require_builder()
    places = task_folders(folders)
    add_bases(config, image)

    def make(folder: Path) -> float:
        task = stretched(read_task(folder), timeout_multiplier)
        return image_of(config, task, task_files(config, f"context-{task.context}", lambda: pack(folder))).seconds

    made: dict[str, float] = {}
    failed: dict[str, str] = {}
    with progress_bar("images") as bar, ThreadPoolExecutor(jobs or os.cpu_count()) as pool, ExitStack() as stack:
        stack.callback(pool.shutdown, cancel_futures=True)  # after Ctrl-C, start no more builds
        waiting = {pool.submit(make, folder): folder.resolve().name for folder in places}
        for done, future in enumerate(as_completed(waiting), 1):
            name = waiting[future]
            try:
                made[name] = round(future.result(), 1)
            except WeavegenError as error:
                failed[name] = str(error).removeprefix(f"{name}: ")
            bar(done, len(places), name)
    lines = [f"{name}: {why}" for name, why in sorted(failed.items())]
    lines.append(f"{len(made)} of {len(places)} images are made")
    return Result({"made": made, "failed": failed}, (line + "\n" for line in lines), code=1 if failed else 0)


@command(group=images)
def add(
    name: Annotated[str, typer.Argument(help="The name that Dockerfiles use after FROM.")],
    source: Annotated[Path, typer.Argument(help="A root file system as a folder or a tar archive, or an OCI folder.")],
) -> Result:
    """Add a base image that Dockerfiles name and that this host can't get from a registry.

    Example: weavegen images add ubuntu:24.04 ./rootfs.tar
    """
    from weavegen.sandbox.images import add_base, require_builder

    require_builder()
    add_base(configuration.load(), name, source)
    return Result({"image": name}, f"FROM {name} is now {source}")


@command(group=images)
def prune() -> Result:
    """Remove images that no open trace and no box uses, pulled images without them, and what failed builds left.

    A removed image is built again when it is needed.

    Example: weavegen images prune
    """
    from weavegen.sandbox.images import prune as prune_images

    def used() -> set[str]:
        with reading() as conn:
            return set(sql.run(conn, "store/images_in_use").scalars())

    removed, freed = prune_images(configuration.load(), used)
    return Result({"removed": removed, "bytes": freed}, f"{removed} images removed, {freed / 1e9:.2f} GB freed")


def add_bases(config: Config, options: list[str] | None) -> None:
    """Add the base images of options NAME=FOLDER. Raises UsageError."""
    from weavegen.sandbox.images import add_base

    for option in options or ():
        name, equals, place = option.rpartition("=")
        if not equals:
            raise UsageError(f"--image {option!r:.80}: give NAME=FOLDER")
        add_base(config, name, Path(place))
