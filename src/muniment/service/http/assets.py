"""The files of pages: scripts and styles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assets:
    """Where the files of pages are: `path` from the root of the service; `release` names them and the program.

    `notice` is a line above every page.
    """

    path: str
    release: str
    # The style sheets of all pages, and for each module those that it imports, so that a browser asks for all at once.
    styles: tuple[str, ...]
    imports: dict[str, tuple[str, ...]]
    notice: str = ""
