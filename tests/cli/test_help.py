"""The help of every command: a summary of one line, and examples that its options allow."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from muniment.cli.examples import EXAMPLES
from muniment.cli.main import main

# Columns of a help text that is 80 wide: two to indent it, two to indent a name, two between name and summary.
_WIDTH = 80 - 2 - 2 - 2 - 2


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command, int]]:
    """The path of each command, the command, and the columns of its summary in the help of its group."""
    shown = {name: command for name, command in group.commands.items() if not command.hidden}
    width = _WIDTH - max(map(len, shown))
    for name, command in shown.items():
        yield f"{path} {name}".lstrip(), command, width
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}".lstrip())


ALL = {path: (command, width) for path, command, width in commands(main)}


@pytest.mark.parametrize("path", ALL)
def test_a_summary_fits_into_the_line_of_its_command(path: str) -> None:
    command, width = ALL[path]
    assert command.get_short_help_str(width) == command.get_short_help_str(1_000)


def test_every_command_that_does_something_has_examples() -> None:
    does = {
        path for path, (command, _) in ALL.items()
        if not isinstance(command, click.Group) or command.invoke_without_command
    }  # fmt: skip
    assert EXAMPLES.keys() == does


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_has_the_options_and_arguments_of_its_command(line: str) -> None:
    text = re.split(r"\)\"|[>|]", line[line.index("muniment ") :])[0]
    _, *words = shlex.split(text)
    command: click.Command = main
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    context = click.Context(command)
    given, extra, _ = command.make_parser(context).parse_args(words)
    assert extra == []
    needed = [each for each in command.params if each.required]
    assert [each.name for each in needed if not given.get(each.name or "")] == []


def test_the_examples_are_in_the_help_as_they_are_written() -> None:
    shown = CliRunner().invoke(main, ["completion", "--help"]).output
    assert "\\b" not in shown
    assert "\b" not in shown
    for line in EXAMPLES["completion"]:
        assert f"    {line}\n" in shown
