"""`export --push-to-hub`: the finished folder of an export as a dataset of the Hugging Face hub, by huggingface-hub.

The token is HF_TOKEN, or the one that `hf auth login` has stored. HF_ENDPOINT names another hub than huggingface.co.
"""

import os
import re
from pathlib import Path

from weavegen.errors import UsageError, WeavegenError
from weavegen.exports.card import CARD
from weavegen.trace.render import one_line

PATH, SPLIT = re.compile(r"^    path: (\w+)/", re.MULTILINE), re.compile(r"^\| (\w+) \| \d+ \| \d+ \|$", re.MULTILINE)
"""Where a card names the folders of its files. If it has no paths, each split has a folder."""


class Dataset:
    """A dataset of the hub."""

    def __init__(self, name: str, *, public: bool) -> None:
        """Create it, unless it exists. `name`: OWNER/NAME. Raises UsageError if that is refused."""
        import httpx2
        from huggingface_hub import HfApi

        self._api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        try:
            made = self._api.create_repo(name, repo_type="dataset", private=not public, exist_ok=True)
        except (httpx2.HTTPError, OSError, ValueError) as error:
            reason = f"{one_line(str(error))[:300]}; HF_TOKEN must be a token that may write there"
            raise UsageError(f"--push-to-hub {name}: {reason}") from None
        self.name, self.url = made.repo_id, made.url

    def push(self, folder: Path) -> None:
        """Upload a folder as one commit, which replaces an earlier export. Raises WeavegenError; the folder stays."""
        import httpx2
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()
        folders = {path.name for path in folder.iterdir() if path.is_dir()}
        try:
            if self._api.file_exists(self.name, CARD, repo_type="dataset"):
                card = Path(self._api.hf_hub_download(self.name, CARD, repo_type="dataset")).read_text()
                if "\n# weavegen export: " in card:
                    folders.update(PATH.findall(card) or SPLIT.findall(card))
            self._api.upload_folder(
                repo_id=self.name,
                folder_path=folder,
                repo_type="dataset",
                commit_message="Export by weavegen",
                delete_patterns=[f"{name}/*" for name in sorted(folders)],
            )
        except (httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:
            reason = one_line(str(error))[:300]
            again = f"push it with `hf upload --repo-type dataset {self.name} {folder}`"
            raise WeavegenError(f"{folder} is complete, but was not pushed: {reason}; {again}") from None
