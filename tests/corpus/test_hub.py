"""`export --push-to-hub`, with huggingface-hub's client and a stand-in for the hub. No test speaks to the real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub import TOKEN, Hub, standing_in
from tests.support.installation import Installation


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with standing_in() as found:
        found.cache = tmp_path / "cache"
        yield found


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    made = installation.json("enqueue", "--agent", "react", "--task", "Write a list.", "-n", "2", "--seed", "5")
    installation.wait(int(made["job"]))
    return int(made["job"])


def environ(hub: Hub) -> dict[str, str]:
    # The client's other transport, Xet, is a protocol of its own, which the stand-in does not have.
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(hub.cache)}


@pytest.mark.parametrize("format", ["trajectories", "sessions"])
def test_the_dataset_has_the_files_of_the_folder(
    installation: Installation, job: int, hub: Hub, tmp_path: Path, format: str
) -> None:
    for place in ("first", "second"):
        options = ("--where", f"job_id = {job}", "--push-to-hub", "me/data")
        out = tmp_path / place
        written = installation.json("export", "--format", format, "--out", out, *options, **environ(hub))
        assert written["pushed_to"] == f"{hub.url}/datasets/me/data"
        files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert hub.files == files
        assert "README.md" in files
        hub.files["data/train-00000-of-00009.parquet"] = b"of an earlier export"
        if format == "sessions":  # it has no such folder
            del hub.files["data/train-00000-of-00009.parquet"]
    assert [one["visibility"] for one in hub.created] == ["private", "private"]


def test_an_earlier_export_is_replaced_whole(installation: Installation, job: int, hub: Hub, tmp_path: Path) -> None:
    """Also one of another format, or with other splits. Files that no export wrote stay."""
    kept = {"notes/mine.md": b"# Mine", "LICENSE": b"Free."}
    hub.files |= kept
    orders = [("sessions", "train=1,test=1"), ("py", "all=1"), ("sessions", "train=1"), ("sft", "a=1"), ("py", "b=1")]
    for number, (format, split) in enumerate(orders):
        options = ("--format", format, "--split", split, "--where", f"job_id = {job}", "--push-to-hub", "me/data")
        out = tmp_path / str(number)
        installation.json("export", "--out", out, *options, **environ(hub))
        files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert hub.files == files | kept


def test_public_and_refused(installation: Installation, job: int, hub: Hub, tmp_path: Path) -> None:
    options = ("export", "--format", "sessions", "--where", f"job_id = {job}", "--push-to-hub", "me/data")
    done = installation.cli(*options, "--public", "--out", tmp_path / "public", **environ(hub))
    assert done.returncode == 0, done.stderr
    assert f"pushed to {hub.url}/datasets/me/data" in done.stdout
    assert [one["visibility"] for one in hub.created] == ["public"]
    hub.refuses = True
    done = installation.cli(*options, "--out", tmp_path / "refused", **environ(hub))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "You have no right to write here" in done.stderr
    assert f"hf upload --repo-type dataset me/data {tmp_path / 'refused'}" in done.stderr
    assert (tmp_path / "refused" / "README.md").exists()


@pytest.mark.parametrize(
    ("options", "token", "reason"),
    [
        (("--push-to-hub", "me/data"), "hf_another", "Invalid credentials"),
        (("--push-to-hub", "me/da ta"), TOKEN, "alphanumeric"),
        (("--public",), TOKEN, "--public needs --push-to-hub"),
    ],
)
def test_what_can_not_be_pushed_is_not_exported(
    installation: Installation, job: int, hub: Hub, tmp_path: Path, options: tuple[str, ...], token: str, reason: str
) -> None:
    done = installation.cli(
        "export", "--format", "sessions", "--out", tmp_path / "out", *options, **environ(hub) | {"HF_TOKEN": token}
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert reason in done.stderr
    assert not (tmp_path / "out").exists()
