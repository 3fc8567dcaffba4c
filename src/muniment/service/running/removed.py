"""Settings that are gone. One that is still given is refused: a registry that ignored it would not do what is meant."""

from __future__ import annotations

from typing import Final

# The name of each, and what to do instead.
REMOVED: Final[dict[str, str]] = {}


def refusal_text(name: str) -> str | None:
    """Why the setting `name` is refused, and what to do instead; None if there never was one of this name."""
    instead = REMOVED.get(name)
    return None if instead is None else f"the setting {name} is gone: {instead}"
