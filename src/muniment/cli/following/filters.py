"""The options that choose events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
# Options, the parameters of GET /events that they stand for, and what they choose.
_FILTERS: Final = {
    "--type": ("types", "events of this type, like trigger.created"),
    "--owner": ("owner", "events about this signer, creator or user"),
    "--signer": ("signer", "trigger events of this signer"),
    "--function": ("functionCid", "events about the function with this CID"),
    "--user": ("user", "intent events of this user"),
    "--config-sig": ("configSig", "intent events of this trigger"),
    "--settler": ("settler", "intent events of this settlement contract"),
}


def filter_options(command: F) -> F:
    """Add the options to a command; `take_filters` reads them from its keyword arguments."""
    for option, (parameter, chosen) in reversed(_FILTERS.items()):
        text = f"Only {chosen}; can be repeated."
        command = click.option(option, _argument(parameter), multiple=True, help=text)(command)
    return command


def take_filters(flags: dict[str, Any]) -> dict[str, list[str]]:
    """The values that were given for parameters of GET /events, which are removed from `flags`."""
    found = {parameter: list(flags.pop(_argument(parameter))) for parameter, _ in _FILTERS.values()}
    return {parameter: values for parameter, values in found.items() if values}


def _argument(parameter: str) -> str:
    return f"only_{parameter.lower()}"
