"""`muniment runs`."""

from __future__ import annotations

import click

from muniment.cli.client.runs import COMMANDS


@click.group()
def runs() -> None:
    """What became of triggers that were due: the runs that relayers recorded."""


for _command in COMMANDS:
    runs.add_command(_command)
