"""The 257 directories of a block store, handed from test to test: making and removing them takes 12 ms of a core."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final


class LentBlocks:
    """Directories of a block store without a block, which one test at a time uses."""

    # The time of change of a directory of blocks in which nothing was written since it was emptied.
    EMPTIED_NS: Final = 0

    def __init__(self, home: Path) -> None:
        """Keep them in `home`; the first test makes them."""
        self._kept = home / "blocks"

    def lend(self, root: Path) -> bool:
        """Move them to `root`, if they are there; whether they may be taken back, since `root` is new."""
        if root.exists():
            return False
        if self._kept.exists():
            self._kept.rename(root)
        return True

    def take_back(self, root: Path) -> None:
        """Remove the blocks and keep the directories. Those that a test changed otherwise stay where they are."""
        if root.exists() and _is_emptied(root):
            root.rename(self._kept)


def _is_emptied(root: Path) -> bool:
    """Remove the files; whether all directories are there, as they are made, and nothing else."""
    with os.scandir(root) as found:
        directories = list(found)
    if len(directories) != 257 or not all(each.is_dir(follow_symlinks=False) for each in directories):
        return False
    for each in directories:
        state = each.stat(follow_symlinks=False)
        if state.st_mode & 0o700 != 0o700:
            return False
        if state.st_mtime_ns != LentBlocks.EMPTIED_NS:
            with os.scandir(each) as left:
                for file in list(left):
                    if file.is_dir(follow_symlinks=False):
                        return False
                    os.unlink(file)  # noqa: PTH108 - an entry is no Path
            os.utime(each, ns=(LentBlocks.EMPTIED_NS, LentBlocks.EMPTIED_NS))
    return True
