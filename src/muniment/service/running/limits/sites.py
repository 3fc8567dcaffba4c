"""Bounds on concurrent use by clients with many addresses: an IPv6 site has 65,536 /64 networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A site's bound, as a multiple of the bound of one client.
SITE_SCALE: Final = 4


def has_most(names: Iterable[str], count_of: Callable[[str], int], most: int) -> bool:
    """Whether a client has at least `most`, or its site `SITE_SCALE` times as many; `names` as in `Client`."""
    for name in names:
        if count_of(name) >= most:
            return True
        most *= SITE_SCALE
    return False
