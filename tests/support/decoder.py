"""A decoder for the test of linear time, and the sizes that the service accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

KIB = 1024
# What the service takes: JSON bodies, manifests, answers of nodes and price APIs; header fields; targets.
BODY, FIELD = 256 * KIB, 32 * KIB
Frames = tuple[tuple[bytes, bytes], ...]
PLAIN: Frames = ((b"", b""), (b'"', b""), (b"", b"!"))


@dataclass(frozen=True)
class Decoder:
    """A decoder of at most `size` bytes; `frames` are the texts around hostile pieces."""

    name: str
    read: Callable[[bytes], object]
    covers: tuple[str, ...] = ()
    size: int = BODY
    frames: Frames = PLAIN
    is_on_loop: bool = True


def text_reader(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """A decoder of bytes from one of texts."""
    return lambda data: read(data.decode("latin-1"))
