"""Settings, and values of settings, that are gone.

One that is still given is refused: a registry that ignored it would not do what is meant.
"""

from __future__ import annotations

from typing import Final

# The name of each, and what to do instead.
REMOVED: Final[dict[str, str]] = {
    "ipfs_pin_authorization": "`muniment blocks pin` reads MUNIMENT_KUBO_AUTHORIZATION, or the same with _FILE",
    "ipfs_pin_url": "`muniment blocks pin --kubo URL --follow` lets an IPFS node pin the bundles",
    "workers": "a service is one process; for more cores run several services on one PostgreSQL database, see "
    "docs/run/scaling.md",
}
_OWNERS_HOOKS: Final = "write on, the default: webhooks belong to operators, and those of owners are gone"
# Values of settings that have others now, and what to do instead.
_REMOVED_VALUES: Final = {("webhooks", "operators"): _OWNERS_HOOKS, ("webhooks", "users"): _OWNERS_HOOKS}


def refusal_text(name: str) -> str | None:
    """Why the setting `name` is refused, and what to do instead; None if there never was one of this name."""
    instead = REMOVED.get(name)
    return None if instead is None else f"the setting {name} is gone: {instead}"


def value_refusal_text(name: str, value: str) -> str | None:
    """Why this value of the setting `name` is refused, and what to do instead; None if it never was a value."""
    instead = _REMOVED_VALUES.get((name, value))
    return None if instead is None else f"{name} = {value} is gone: {instead}"
