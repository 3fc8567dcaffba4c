"""Text files that people write, on any system and with any editor."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_text_file(path: Path, bytes_max: int | None = None) -> bytes:
    """The content of a text file as `plain_text` has it; `bytes_max` bytes of one that is longer.

    Raises `OSError`.
    """
    with path.open("rb") as file:
        content = file.read(None if bytes_max is None else bytes_max + len(BOM_UTF8))
    if bytes_max is None or len(content) < bytes_max:
        return plain_text(content)
    return content.removeprefix(BOM_UTF8)[:bytes_max]  # with its line ends: callers see by the length that it is cut


def read_text(path: Path, bytes_max: int | None = None) -> str:
    """As `read_text_file`, as text. Raises `OSError`, and `ValueError` with the file's name unless it is UTF-8."""
    try:
        return read_text_file(path, bytes_max).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8: save it as UTF-8") from None


def plain_text(content: bytes) -> bytes:
    """`content` without a byte-order mark at its head, and with LF in place of CR LF, which Windows writes."""
    return content.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
