"""The group of the commands of the transparency log."""

from __future__ import annotations

import click


@click.group()
def tlog() -> None:
    """The transparency log: follow it, or run it."""
