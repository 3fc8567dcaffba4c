"""A cursor in a file, for programs that follow a listing across restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from muniment.durable import whole_file
from muniment.text_files import read_text_file

# A cursor has some sixty characters.
_BYTES_MAX = 64 * 1024


class Checkpoint:
    """A file with a cursor. `about` identifies the listing, for example by its URL and filters.

    Write the cursor of a page when its work is done: after a crash the page comes again, and no record is missed.
    """

    def __init__(self, path: Path | str | None, **about: str | None) -> None:
        """Use the file at `path`, which need not exist; None: nothing is stored."""
        self._path = None if path is None else Path(path)
        self._about = {name: value for name, value in about.items() if value is not None}

    def read(self) -> str | None:
        """The cursor; None if there is no file.

        Raises `ValueError` if the file is damaged or belongs to another listing.
        """
        try:
            content = read_text_file(self._path, _BYTES_MAX) if self._path else None
        except FileNotFoundError:
            content = None
        if content is None:
            return None
        try:
            found: Any = json.loads(content)
            cursor, about = found["cursor"], cast("dict[str, str]", found["about"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"{self._path} is not a position file: remove it to start over") from None
        if about != self._about:
            raise ValueError(f"{self._path} is the position of {about}: name another file")
        if not isinstance(cursor, str):
            raise ValueError(f"{self._path} is not a position file: remove it to start over")  # noqa: TRY004 - the file, not an argument, is wrong
        return cursor

    def write(self, cursor: str | None) -> None:
        """Store `cursor`: the file is replaced atomically and synced. None changes nothing."""
        if cursor is None or self._path is None:
            return
        with whole_file(self._path) as file:
            file.write(json.dumps({"cursor": cursor, "about": self._about}).encode() + b"\n")
