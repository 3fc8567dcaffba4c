"""Commands and options that are gone: each is refused with what to do instead, and shown in no help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def removed_command(name: str, instead: str) -> click.Command:
    """The command `name` of a group, which does nothing but refuse whatever it is given. `instead`: what to do."""

    def refuse() -> None:
        context = click.get_current_context()
        raise click.UsageError(f"`{context.command_path}` is gone: {instead}", context.parent)

    return click.Command(
        name, callback=refuse, hidden=True, add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )  # fmt: skip


def removed_option(name: str, instead: str, *, is_flag: bool = False) -> Callable[[Command], Command]:
    """Refuse the option `name` of a command; `is_flag`: it took no value. `instead`: what to do."""

    def refuse(context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value:
            raise click.UsageError(f"the option {name} is gone: {instead}", context)

    return click.option(
        name, hidden=True, expose_value=False, is_eager=True, callback=refuse, is_flag=is_flag, default=None
    )
