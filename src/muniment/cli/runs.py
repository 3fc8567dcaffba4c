"""`muniment runs`."""

from __future__ import annotations

import click

from muniment.cli.client.runs import COMMANDS
from muniment.cli.verify_run import verify_run


@click.group()
def runs() -> None:
    """What became of triggers that were due: the runs that relayers recorded."""


for _command in (*COMMANDS, verify_run):
    runs.add_command(_command)
