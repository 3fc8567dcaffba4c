"""What one client may have at a time where it has many addresses: a site of IPv6 has 65,536 networks of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A site may have so many times what one of its clients may have.
SITE_SCALE: Final = 4


def has_most(names: Iterable[str], count_of: Callable[[str], int], most: int) -> bool:
    """Whether a client has `most` or more, or its site `SITE_SCALE` times as many; `names` are those of `Client`."""
    for name in names:
        if count_of(name) >= most:
            return True
        most *= SITE_SCALE
    return False
