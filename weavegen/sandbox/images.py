"""Images without a daemon: root file systems from Dockerfiles, made once per content by buildah or Podman.

The layers lie in a store of the installation, in the format of containers-storage. They are made in a user namespace
(userns.py), so that no build is root of the host, and boxes mount them as they are (image_root.py).
"""

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from weavegen import folders
from weavegen.config import Config
from weavegen.errors import ImageFailure, Unserved, UsageError
from weavegen.sandbox import userns
from weavegen.sandbox.bubblewrap import IMAGE_PATH

WAIT_SECONDS = 7200.0  # longest wait for another process that makes the same image
RETRY_SECONDS = 15.0  # while all builders are busy, a step that needs an image is tried again after this time
MAX_BUILDS = 8
"""Maximum builds at a time. They mostly wait for the network and the disk, and each occupies a worker thread."""
MIN_FREE_BYTES = 5 * 2**30  # with less free disk space, no worker makes an image
NO_SPACE = "no space left on device"  # what programs print if the disk is full (ENOSPC)
PASSING = re.compile(
    r"(?i): StatusCode: (429|50[0234]), |(too many requests|toomanyrequests: |(status|code|registry):? (429|50[0234])"
    r"|(i/o|handshake) timeout|timeout (exceeded|awaiting)|connection (reset|timed out)|unexpected EOF"
    r"|temporary failure in name resolution)"
    r'(?!.*exit status)([^;"]|"[^;"]*")*\Z'  # at the end: an instruction's are before it; not in quotes: names are
)
"""Why a build fails if a registry, or the network to it, is out of order for a while."""
InUse = Callable[[], set[str]]
"""Returns the names of the images that open traces need, and the hashes of the files of their tasks."""
MAX_IDS = 500  # of images on one command line
PODMAN = {"bud": ["build"], "rm": ["rm", "--force"]}
"""Commands of buildah that have another name in podman, or that need --force there for the containers of builds."""
NAME = re.compile(r"[a-z0-9][a-z0-9._/:@-]{0,254}\Z")


@dataclass(frozen=True)
class Image:
    """A root file system, ready to be mounted."""

    digest: str
    """Hash of what it was made from."""
    name: str
    """What it was made for: the name of a task, or of an image."""
    identity: str
    """The image's id in the store."""
    layers: str
    """`lowerdir` of mount(8), the newest layer first, relative to the folder `layer_folder`."""
    environ: dict[str, str]
    workdir: str
    user: str
    """Name or number; empty: root."""
    seconds: float
    """Time that it took to make."""
    size: int
    """Bytes of its layers. Images share layers."""


def store(config: Config) -> Path:
    """The folder of the store, which belongs to root of the user namespaces."""

    def make(draft: Path) -> None:
        for folder in (draft, *(draft / name for name in ("storage", "run", "home", "tmp"))):
            folder.mkdir(mode=0o700)
            os.chown(folder, userns.owner(0), userns.owner(0))

    place = folders.private(config.home) / "images"
    place.mkdir(mode=0o711, exist_ok=True)
    return folders.once(place / "store", make)


def layer_folder(config: Config) -> Path:
    return store(config) / "storage" / "overlay"


def require_builder() -> str:
    """The program that makes images. Raises UsageError, with advice."""
    if reason := userns.unavailable():
        raise UsageError(f"images can't be used here: {reason}")
    if (logins := os.environ.get("REGISTRY_AUTH_FILE")) and not os.access(logins, os.R_OK):
        raise UsageError(f"{logins} can't be read: correct or unset REGISTRY_AUTH_FILE")
    if found := [program for program in ("buildah", "podman") if shutil.which(program)]:
        return found[0]
    raise UsageError("images can't be made here: install buildah (or podman), which needs no daemon")


def run_builder(config: Config, arguments: Sequence[str], seconds: float, source: Path | None = None) -> str:
    """Run the builder in its user namespace. Returns the last MB of what it prints. Raises UsageError.

    `source`: a folder or file, which it finds as STAGE/source.
    """
    program = require_builder()
    place = userns.STAGE + "/store"
    command = [program, "--root", f"{place}/storage", "--runroot", f"{place}/run", "--storage-driver", "overlay"]
    if program == "podman":
        command += ["--tmpdir", f"{place}/run/libpod"]  # by default in /run, which belongs to the host's root
        arguments = [*PODMAN.get(arguments[0], arguments[:1]), *arguments[1:]]
    environ = {
        **os.environ,
        "HOME": f"{place}/home",
        "XDG_RUNTIME_DIR": f"{place}/run",
        "XDG_CACHE_HOME": f"{place}/home/.cache",
        "TMPDIR": f"{place}/tmp",
        "_CONTAINERS_USERNS_CONFIGURED": "1",  # containers/storage: the namespace already exists
        "_CONTAINERS_ROOTLESS_UID": "1",  # without it, it writes to /var/cache
    }
    given = {"store": store(config)} | ({} if source is None else {"source": source})
    registries = given["store"] / "home/.config/containers/registries.conf.d"
    registries.mkdir(parents=True, exist_ok=True)
    (registries / "docker.conf").write_text('unqualified-search-registries = ["docker.io"]\n')  # as in Dockerfiles
    # A build's daemons end with its process 1, which alone has the login: what an instruction starts has fewer
    # capabilities and may not open that process's files, not even outside of its chroot(2).
    alone = ["unshare", "-pf", "--kill-child", "--mount-proc", "sh", "-c", '(exec "$@" </dev/null); exit $?', "sh"]
    argv, pipe = userns.command([*alone, *command, *arguments], given), subprocess.PIPE
    tail = partial(subprocess.Popen, ["tail", "-c1000000"], stdin=pipe, stdout=pipe, errors="replace")
    with open(os.memfd_create("logins"), "wb", buffering=0) as logins, tail() as out, tail() as err:
        if file := os.environ.get("REGISTRY_AUTH_FILE"):
            logins.write(Path(file).read_bytes())
            environ["REGISTRY_AUTH_FILE"] = "/proc/1/fd/0"
        try:
            code = subprocess.call(
                argv, stdin=logins, stdout=out.stdin, stderr=err.stdin, process_group=0, timeout=seconds, env=environ
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"it took longer than {seconds:.0f} seconds") from None
        printed, problems = (end.communicate()[0] for end in (out, err))
    if code != 0:
        raise UsageError(reason(printed + problems))
    return printed


def reason(printed: str) -> str:
    """Why a build failed, in one line: the instruction, and the last words of its command."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    steps = [line.partition(": ")[2][:200] for line in lines if line.startswith("STEP ")]
    errors = [line for line in lines if re.match(r"(E:|ERROR|error:|Error:|fatal:|.*[Ee]rror: )", line)]
    full = [line for line in lines if NO_SPACE in line.lower()]  # what comes after it is its consequence
    words = full[-1:] or errors[-2:] or lines[-1:] or ["it printed nothing"]
    return "; ".join([*steps[-1:], *(line[-200:] for line in words)])  # the cause is at the end of a line


def image(
    config: Config, digest: str, name: str, recipe: Path, seconds: float, base: str | None, in_use: InUse | None
) -> Image:
    """The image with this digest, which is made if it is missing.

    `recipe`: the folder with its Dockerfile. `base`: the name of an image instead. `in_use`: given by workers,
    for which this raises Unserved instead of waiting for other builds, and removes images that are not in use if the
    disk is nearly full. Raises ImageFailure with the reason if the image can't be made.
    """
    patience = WAIT_SECONDS if in_use is None else 0
    record = config.home / "images" / "made" / digest

    def make(draft: Path) -> None:
        draft.mkdir()
        context = recipe
        if base is not None:
            (context := draft / "recipe").mkdir()
            (context / "Dockerfile").write_text(f"FROM {base}\n")
        with build_slot(config, patience):
            built = build(config, context, digest, name, seconds)
        (draft / "image.json").write_text(json.dumps(asdict(built)))

    try:
        if in_use is not None and not record.is_dir():
            make_room(config, in_use)
        folders.once(record, make, patience)
    except folders.Locked:
        raise Unserved(f"on {config.host}: images are being made: {name} waits", seconds=RETRY_SECONDS) from None
    except UsageError as error:
        full = NO_SPACE in str(error).lower()
        if full and in_use is not None:
            make_room(config, in_use, full=True)
        if full or PASSING.search(str(error)):
            raise Unserved(f"on {config.host}: {error}", seconds=4 * RETRY_SECONDS) from None
        raise ImageFailure(f"image: {error}") from None
    return Image(**json.loads((record / "image.json").read_text()))


def make_room(config: Config, in_use: InUse, full: bool = False) -> None:
    """If the disk is nearly full, or was `full`, remove unused images. Raises Unserved if that is not enough."""
    if full or shutil.disk_usage(store(config)).free < MIN_FREE_BYTES:
        with contextlib.suppress(UsageError), folders.locked(config.home / "images" / "prune.lock", 0):
            prune(config, in_use)
    if shutil.disk_usage(store(config)).free < MIN_FREE_BYTES:
        why = f"less than {MIN_FREE_BYTES >> 30} GB are free for images in {config.home}: make room there"
        raise Unserved(f"on {config.host}: {why}", seconds=RETRY_SECONDS)


@contextlib.contextmanager
def build_slot(config: Config, patience: float) -> Iterator[None]:
    """Let as many builds run at a time as there are cores, at most MAX_BUILDS. Raises Locked after `patience` s."""
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        for place in itertools.cycle(places := slots(config)):
            try:
                stack.enter_context(folders.locked(place, 0))
                break
            except folders.Locked:
                if place == places[-1] and time.monotonic() >= deadline:
                    raise
                time.sleep(0.1 if patience else 0)
        yield


def slots(config: Config) -> list[Path]:
    """The locks of the builds that may run at a time."""
    return [config.home / "images" / f"build-{number}.lock" for number in range(min(os.cpu_count() or 1, MAX_BUILDS))]


def build(config: Config, recipe: Path, digest: str, name: str, seconds: float) -> Image:
    """Make an image from a folder with a Dockerfile. Raises UsageError."""
    began = time.monotonic()
    tag = f"localhost/weavegen:{digest[:32]}"
    # OCI's format has no SHELL and no HEALTHCHECK.
    options = ["--format", "docker", "--isolation", "chroot", "--layers", "--pull=false", "-t", tag]
    if file := os.environ.get("SSL_CERT_FILE"):  # of this host's proxy; what a build writes to its folder is dropped
        folder = Path(file).resolve().parent
        options += ["-v", f"{folder}:{folder}:O"]
    source = userns.STAGE + "/source"
    identity = run_builder(config, ["bud", *options, "-f", f"{source}/Dockerfile", source], seconds, recipe).split()[-1]
    layers, size, settings = read_stored(layer_folder(config).parent, identity)
    return Image(
        digest=digest,
        name=name,
        identity=identity,
        layers=layers,
        environ=dict(entry.split("=", 1) for entry in settings.get("Env") or ()),
        workdir=settings.get("WorkingDir") or "/",
        user=settings.get("User") or "",
        seconds=time.monotonic() - began,
        size=size,
    )


def added(config: Config) -> dict[str, list[object]]:
    """What the base images that a user has added were made from, by name."""
    known = config.home / "images" / "bases.json"
    return json.loads(known.read_text()) if known.exists() else {}


def stored(storage: Path, kind: str) -> list[dict[str, Any]]:
    """The images, layers or containers of a store. Containers are those of builds."""
    with contextlib.suppress(OSError):
        return list(json.loads((storage / f"overlay-{kind}" / f"{kind}.json").read_text()))
    return []


def read_stored(storage: Path, identity: str) -> tuple[str, int, dict[str, Any]]:
    """The layers of an image, the newest first, their bytes, and its configuration. Raises UsageError."""
    try:
        layer = next(entry["layer"] for entry in stored(storage, "images") if entry["id"] == identity)
        known = {entry["id"]: entry for entry in stored(storage, "layers")}
        names, size = [], 0
        while layer:
            names.append("l/" + (storage / "overlay" / layer / "link").read_text().strip())
            size += known[layer].get("diff-size", 0)
            layer = known[layer].get("parent", "")
        name = base64.b64encode(f"sha256:{identity}".encode()).decode()  # as containers/storage names its files
        settings = json.loads((storage / "overlay-images" / identity / f"={name}").read_text())["config"]
    except (OSError, ValueError, LookupError, StopIteration) as error:
        raise UsageError(f"the store of images can't be read: {error!r}") from None
    return ":".join(names), size, settings


def made(config: Config) -> list[Image]:
    """All images of this host, by name."""
    found = []
    for record in (config.home / "images" / "made").glob("[0-9a-f]*/image.json"):
        with contextlib.suppress(FileNotFoundError):
            found.append(Image(**json.loads(record.read_text())))
    return sorted(found, key=lambda image: image.name)


def add_base(config: Config, name: str, source: Path) -> None:
    """Let Dockerfiles begin with `FROM name`. Raises UsageError.

    `source`: an OCI folder, a root file system as a folder, or as a tar archive.
    """
    if not NAME.match(name):
        raise UsageError(f"{name!r:.80} can't be the name of an image: write it as after FROM in a Dockerfile")
    if not source.exists():
        raise UsageError(f"{source} does not exist: give the folder or the tar archive of a root file system")
    status, known = source.stat(), store(config).parent / "bases.json"
    content = [str(source.resolve()), status.st_mtime_ns, status.st_size]
    with folders.locked(known.with_name("add.lock"), WAIT_SECONDS):  # prune removes the containers of builds
        if added(config).get(name) != content:
            import_base(config, name, source)
            (draft := known.with_name("bases.draft")).write_text(json.dumps(added(config) | {name: content}))
            draft.rename(known)  # builds read it


def import_base(config: Config, name: str, source: Path) -> None:
    """Make an image of a root file system. Raises UsageError."""
    with tempfile.TemporaryDirectory(dir=config.home) as scratch:
        recipe = Path(scratch, "recipe")
        if (source / "oci-layout").exists():
            shutil.copytree(source, recipe)
            folders.let_read(Path(scratch))
            identity = run_builder(config, ["pull", f"oci:{userns.STAGE}/source"], WAIT_SECONDS, recipe).split()[-1]
            run_builder(config, ["tag", identity, name], 60)
            return
        recipe.mkdir()
        listing = ["ls", str(source)] if source.is_dir() else ["tar", "-tf", str(source)]
        names = subprocess.run(listing, capture_output=True, text=True, errors="replace").stdout
        if not re.search(r"^(\./)?(usr|bin)(/|$)", names, re.MULTILINE):
            advice = "`docker export` gives that of a container, and `docker save` something else"
            raise UsageError(f"{source} is not a root file system, as it has neither usr nor bin: {advice}")
        if source.is_dir():
            command = ["tar", "--numeric-owner", "-C", str(source), "-cf", f"{recipe}/root.tar", "."]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                problem = done.stderr.partition("\n")[0]
                raise UsageError(f"{source} can't be packed ({problem}): try it as root, or give a tar archive")
        else:
            shutil.copyfile(source, recipe / "root.tar")
        (recipe / "Dockerfile").write_text(f"FROM scratch\nADD root.tar /\nENV PATH={IMAGE_PATH}\n")
        folders.let_read(Path(scratch))
        options = ["--isolation", "chroot", "--timestamp", "0", "-t", name]  # equal files, equal image
        run_builder(config, ["bud", *options, userns.STAGE + "/source"], WAIT_SECONDS, recipe)


def prune(config: Config, in_use: InUse) -> tuple[int, int]:
    """Remove the images that neither open traces nor live boxes use, and leftovers of builds, which can be gigabytes.

    Returns how many images were removed, and about how many bytes this has freed.
    """
    if not (config.home / "images" / "store").is_dir():
        return 0, 0
    with contextlib.ExitStack() as stack:
        for place in (*slots(config), config.home / "images" / "add.lock"):  # builds may continue from what is removed
            stack.enter_context(folders.locked(place, WAIT_SECONDS))
        before = shutil.disk_usage(store(config)).free
        live, keep = mounted(), in_use()  # now, because traces may have started while this waited for the locks
        doomed = [one for one in made(config) if one.name not in keep and one.layers.partition(":")[0] not in live]
        for image in doomed:
            shutil.rmtree(config.home / "images" / "made" / image.digest)
        if left := [one["id"] for one in stored(layer_folder(config).parent, "containers")]:
            run_builder(config, ["rm", *left], 3600)
        for _ in range(0, len(unneeded(config)), MAX_IDS):
            if ids := unneeded(config)[:MAX_IDS]:  # images of which only removed ones were made are gone already
                run_builder(config, ["rmi", "--force", *ids], 3600)
        long_ago = time.time() - WAIT_SECONDS  # builds that wait need the files of their tasks
        files = (path for path in (config.home / "harbor").glob("[0-9a-f]*") if path.stat().st_mtime < long_ago)
        for folder in (*(store(config) / "tmp").iterdir(), *(path for path in files if path.name not in keep)):
            shutil.rmtree(folder, ignore_errors=True)
        return len(doomed), max(shutil.disk_usage(store(config)).free - before, 0)


def mounted() -> set[str]:
    """The layers, as in `Image.layers`, on which boxes of this host run now, also boxes without a trace."""
    found: set[str] = set()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or is no process
            found.update(re.findall(r"\bl/[A-Z0-9]{26}\b", (process / "mountinfo").read_text()))
    return found


def unneeded(config: Config) -> list[str]:
    """The ids of stored images that are neither added bases nor below a task's image, the newest first."""
    needed = {layer for image in made(config) for layer in image.layers.split(":")}
    # The store writes out what a name leaves out: docker.io/library/ and :latest.
    kept = tuple("/" + name.removeprefix("docker.io/").removesuffix(":latest") for name in added(config))
    found = []
    for entry in reversed(stored(layer_folder(config).parent, "images")):
        is_base = any(f"/{name}".removesuffix(":latest").endswith(kept) for name in entry.get("names") or ())
        link = layer_folder(config) / entry.get("layer", "") / "link"
        if not is_base and link.exists() and f"l/{link.read_text().strip()}" not in needed:
            found.append(entry["id"])
    return found


def disk(config: Config) -> int:
    """Bytes that all layers take on the disk, shared ones once."""
    command = userns.command(["du", "-sk", userns.STAGE + "/store/storage"], {"store": store(config)})
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout.split()[0]) * 1024 if done.returncode == 0 else 0


def digest_of(parts: Mapping[str, bytes]) -> str:
    """Hash of what an image is made from."""
    total = hashlib.sha256()
    for name, data in sorted(parts.items()):
        total.update(b"%d %s %d " % (len(name), os.fsencode(name), len(data)) + data)
    return total.hexdigest()
